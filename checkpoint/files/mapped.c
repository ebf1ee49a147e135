/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Records of maps are a lock-free list, because the SIGBUS handler reads them in any thread. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, SA_ONSTACK */
#endif

#include "files/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/file_kind.h"
#include "files/text.h"

/* mmap fails for a length of 0, so an empty file gets this address. */
static const unsigned char empty_data[1];

/* ---- Changes of mapped files ------------------------------------------------------------------------------------- */

/* The handler's record of a map. Handlers may run in any thread at any moment, so records stay allocated until no
 * map is left. */
struct watch {
    struct watch *next;
    atomic_uintptr_t begin, end; /* addresses; 0 and 0: the record is unused */
    atomic_bool missing;         /* some pages have been replaced with zeros */
    const char *path;
    struct stat status; /* at the time of mapping */
};

static _Atomic(struct watch *) watches;
static size_t watch_count; /* number of maps */
static struct sigaction previous_action;
static uintptr_t page_size;
static char *change_message; /* describes the first changed file whose map is closed already; NULL: none */

/* Replaces the page at `at` and all pages after it with zeros: after a missing page, the rest is missing, too. mmap
 * is a plain system call on these systems, so a handler may call it. */
static bool map_zeros(struct watch *w, uintptr_t at)
{
    const uintptr_t page = at & ~(page_size - 1), end = (atomic_load(&w->end) + page_size - 1) & ~(page_size - 1);
    atomic_store(&w->missing, true);
    return mmap((void *)page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static void forward_signal(int number, siginfo_t *info, void *context)
{
    if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
        previous_action.sa_sigaction(number, info, context);
    } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
        previous_action.sa_handler(number);
    } else {
        signal(number, SIG_DFL); /* the faulting instruction runs again and ends the program */
        if (info->si_code <= 0)
            raise(number);
    }
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    const uintptr_t at = (uintptr_t)info->si_addr;
    for (struct watch *w = info->si_code > 0 ? atomic_load(&watches) : NULL; w; w = w->next)
        if (at >= atomic_load(&w->begin) && at < atomic_load(&w->end) && map_zeros(w, at)) {
            errno = error;
            return;
        }
    forward_signal(number, info, context);
    errno = error;
}

static struct watch *find_unused(void)
{
    for (struct watch *w = atomic_load(&watches); w; w = w->next)
        if (atomic_load(&w->begin) == 0)
            return w;
    struct watch *w = calloc(1, sizeof *w);
    if (w) {
        w->next = atomic_load(&watches);
        atomic_store(&watches, w);
    }
    return w;
}

static int watch_map(struct mapped *map, const struct stat *status, struct fail *f)
{
    struct watch *w = find_unused();
    if (!w)
        return fail_system(f, "%s: out of memory", map->path);
    if (watch_count == 0) {
        struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        sigemptyset(&action.sa_mask);
        page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
        if (sigaction(SIGBUS, &action, &previous_action) != 0)
            return fail(f, "%s: cannot watch for bus errors: %s", map->path, strerror(errno));
    }
    w->path = map->path;
    w->status = *status;
    atomic_store(&w->missing, false);
    atomic_store(&w->end, (uintptr_t)map->data + map->size);
    atomic_store(&w->begin, (uintptr_t)map->data);
    map->watch = w;
    watch_count++;
    return 0;
}

/* Fails if the file has become shorter, was written to, or could not be read. If another file now has its name, the
 * map still shows the original, so that is no change. */
static int check(const struct watch *w, struct fail *f)
{
    struct stat now;
    const struct stat *then = &w->status;
    const bool same = stat(w->path, &now) == 0 && is_same_file(&now, then);
    if (same && now.st_size < then->st_size)
        return SYSTEM_FAILURE(f, "%s: became shorter while it was read: %jd bytes instead of %jd", w->path,
                              (intmax_t)now.st_size, (intmax_t)then->st_size);
    if (same && (now.st_mtim.tv_sec != then->st_mtim.tv_sec || now.st_mtim.tv_nsec != then->st_mtim.tv_nsec))
        return SYSTEM_FAILURE(f, "%s: was written to while it was read", w->path);
    return atomic_load(&w->missing) ? SYSTEM_FAILURE(f, "%s: could not be read to its end", w->path) : 0;
}

static void unwatch_map(const struct mapped *map)
{
    struct watch *w = map->watch;
    struct fail f;
    if (!change_message && check(w, &f) != 0)
        change_message = strdup(f.message);
    atomic_store(&w->begin, 0);
    atomic_store(&w->end, 0);
    if (--watch_count > 0)
        return;
    sigaction(SIGBUS, &previous_action, NULL);
    for (struct watch *next; (w = atomic_load(&watches)); free(w)) {
        next = w->next;
        atomic_store(&watches, next);
    }
}

int mapped_check(struct fail *f)
{
    if (change_message)
        return SYSTEM_FAILURE(f, "%s", change_message);
    for (const struct watch *w = atomic_load(&watches); w; w = w->next)
        if (atomic_load(&w->begin) != 0)
            RETURN_IF_NOT_OK(check(w, f));
    return 0;
}

/* ---- Identities of files ----------------------------------------------------------------------------------------- */

static struct file_identity {
    dev_t device;
    ino_t inode;
} * read_files;
static size_t read_count;
static bool remembers;

void mapped_remember(void) { remembers = true; }

static int remember(const struct stat *status, const char *path, struct fail *f)
{
    const struct file_identity file = {status->st_dev, status->st_ino};
    return list_append(&read_files, &read_count, sizeof file, &file) ? 0 : fail_system(f, "%s: out of memory", path);
}

int mapped_remember_directory(const char *path, struct fail *f)
{
    struct stat status;
    return remembers && stat(path, &status) == 0 ? remember(&status, path, f) : 0;
}

bool mapped_was_read(const struct stat *status)
{
    size_t i = 0;
    while (i < read_count && (read_files[i].device != status->st_dev || read_files[i].inode != status->st_ino))
        i++;
    return i < read_count;
}

/* ---- Maps -------------------------------------------------------------------------------------------------------- */

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
                            : "something else";
}

static int map_descriptor(struct mapped *map, int fd, const char *path, struct fail *f)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return fail(f, "%s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return fail(f, "%s: is %s; a regular file is needed", path, kind_of(status.st_mode));
    if ((uintmax_t)status.st_size > PTRDIFF_MAX)
        return fail(f, "%s: %jd bytes are more than this machine can map", path, (intmax_t)status.st_size);
    if (remembers)
        RETURN_IF_NOT_OK(remember(&status, path, f));
    map->size = (size_t)status.st_size;
    map->data = empty_data;
    if (map->size > 0) {
        void *data = mmap(NULL, map->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            return fail_system(f, "%s: cannot map %zu bytes: %s", path, map->size, strerror(errno));
        map->data = data;
        const int result = watch_map(map, &status, f);
        if (result != 0)
            munmap(data, map->size);
        return result;
    }
    return 0;
}

int mapped_open(struct mapped *map, const char *path, struct fail *f)
{
    *map = (struct mapped){0};
    struct mapped made = {.path = strdup(path)};
    if (!made.path)
        return fail_system(f, "%s: out of memory", path);
    /* O_NONBLOCK: opening a pipe without a writer would block. Regular files ignore the flag. */
    OWNED_DESCRIPTOR const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const int error = errno;
    const bool system = error == ENOMEM || error == EMFILE || error == ENFILE;
    const int result = fd >= 0  ? map_descriptor(&made, fd, path, f)
                       : system ? fail_system(f, "%s: cannot open: %s", path, strerror(error))
                                : file_refuse_access(path, "cannot open", error, f);
    if (result == 0)
        *map = made;
    else
        free(made.path);
    return result;
}

void mapped_close(struct mapped *map)
{
    if (map->watch)
        unwatch_map(map);
    if (map->data && map->size > 0)
        munmap((void *)(uintptr_t)map->data, map->size);
    free(map->path);
    *map = (struct mapped){0};
}
