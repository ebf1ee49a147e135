/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, SA_ONSTACK */
#endif

#include "mapped.h"

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

/* mmap refuses a length of 0; an empty file points here instead. */
static const unsigned char nothing[1];

/* ---- Watching ------------------------------------------------------------------------------------------------------------- */

/* A map as the handler sees it. Handlers may run in any thread at any moment, so that what they go through stays where it is
 * until no map is left. */
struct watch {
    struct watch *next;
    atomic_uintptr_t begin, end; /* 0 and 0: none */
    atomic_bool missing;         /* zeros are in place of some of it */
    const char *path;
    struct stat status; /* when it was mapped */
};

static _Atomic(struct watch *) watches;
static size_t watched; /* maps there are */
static struct sigaction before;
static uintptr_t page_size;
static char *changed; /* the message about the first file found changed, of a map that is closed */

/* What follows a page that is missing is missing as well. mmap is a plain system call here, as handlers need it. */
static bool put_zeros(struct watch *w, uintptr_t at)
{
    const uintptr_t page = at & ~(page_size - 1), end = (atomic_load(&w->end) + page_size - 1) & ~(page_size - 1);
    atomic_store(&w->missing, true);
    return mmap((void *)page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static void hand_on(int number, siginfo_t *info, void *context)
{
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        signal(number, SIG_DFL); /* and when this returns, it happens again */
        if (info->si_code <= 0)
            raise(number);
    }
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    const uintptr_t at = (uintptr_t)info->si_addr;
    for (struct watch *w = info->si_code > 0 ? atomic_load(&watches) : NULL; w; w = w->next)
        if (at >= atomic_load(&w->begin) && at < atomic_load(&w->end) && put_zeros(w, at)) {
            errno = error;
            return;
        }
    hand_on(number, info, context);
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
        return fail(f, "%s: out of memory", map->path);
    if (watched == 0) {
        struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        sigemptyset(&action.sa_mask);
        page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
        if (sigaction(SIGBUS, &action, &before) != 0)
            return fail(f, "%s: cannot watch for bus errors: %s", map->path, strerror(errno));
    }
    w->path = map->path;
    w->status = *status;
    atomic_store(&w->missing, false);
    atomic_store(&w->end, (uintptr_t)map->data + map->size);
    atomic_store(&w->begin, (uintptr_t)map->data);
    map->watch = w;
    watched++;
    return 0;
}

/* A file under the same name that is another one now has been replaced; the map still shows the old one. */
static int check(const struct watch *w, struct fail *f)
{
    struct stat now;
    const struct stat *then = &w->status;
    const bool same = stat(w->path, &now) == 0 && now.st_dev == then->st_dev && now.st_ino == then->st_ino;
    if (same && now.st_size < then->st_size)
        return fail(f, "%s: became shorter while it was read: %jd bytes instead of %jd", w->path, (intmax_t)now.st_size,
                    (intmax_t)then->st_size);
    if (same && (now.st_mtim.tv_sec != then->st_mtim.tv_sec || now.st_mtim.tv_nsec != then->st_mtim.tv_nsec))
        return fail(f, "%s: was written to while it was read", w->path);
    return atomic_load(&w->missing) ? fail(f, "%s: could not be read to its end", w->path) : 0;
}

static void unwatch_map(const struct mapped *map)
{
    struct watch *w = map->watch;
    struct fail f;
    if (!changed && check(w, &f) != 0)
        changed = strdup(f.message);
    atomic_store(&w->begin, 0);
    atomic_store(&w->end, 0);
    if (--watched > 0)
        return;
    sigaction(SIGBUS, &before, NULL);
    for (struct watch *next; (w = atomic_load(&watches)); free(w)) {
        next = w->next;
        atomic_store(&watches, next);
    }
}

int mapped_check(struct fail *f)
{
    if (changed)
        return fail(f, "%s", changed);
    for (const struct watch *w = atomic_load(&watches); w; w = w->next)
        if (atomic_load(&w->begin) != 0 && check(w, f) != 0)
            return -1;
    return 0;
}

/* ---- Maps ----------------------------------------------------------------------------------------------------------------- */

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
    map->size = (size_t)status.st_size;
    map->data = nothing;
    if (map->size > 0) {
        void *data = mmap(NULL, map->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            return fail(f, "%s: cannot map %zu bytes: %s", path, map->size, strerror(errno));
        map->data = data;
        if (watch_map(map, &status, f) != 0) {
            munmap(data, map->size);
            return -1;
        }
    }
    return 0;
}

int mapped_open(struct mapped *map, const char *path, struct fail *f)
{
    *map = (struct mapped){0};
    struct mapped made = {.path = strdup(path)};
    if (!made.path)
        return fail(f, "%s: out of memory", path);
    /* O_NONBLOCK: a pipe without a writer would block here; it means nothing to regular files. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int result;
    if (fd < 0)
        result = fail(f, "%s: cannot open: %s", path, strerror(errno));
    else
        result = map_descriptor(&made, fd, path, f);
    if (fd >= 0)
        close(fd);
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
