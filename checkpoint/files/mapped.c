/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif

#include "files/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/bus_errors.h"
#include "files/deferred.h"
#include "files/file_kind.h"
#include "files/text.h"

/* mmap fails for a length of 0, so an empty file gets this address. */
static const unsigned char empty_data[1];

/* The files that the thread reads at the moment; NULL: nothing has begun. */
static _Thread_local struct mapped_files *current;

/* ---- Changes of mapped files ------------------------------------------------------------------------------------- */

struct watch {
    struct watch *next;
    struct mapped_files *files; /* that it belongs to */
    struct bus_range *range;
    void *source; /* of copies; NULL: none */
    const char *path;
    struct stat status; /* at the time of mapping */
};

/* Maps the file once more for copies; NULL: a handler makes them unnecessary, or there is no room. */
static void *map_source(size_t size, int fd)
{
    void *source = bus_errors_are_handled() ? MAP_FAILED : mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    return source == MAP_FAILED ? NULL : source;
}

static int watch_map(struct mapped *map, const struct stat *status, int fd, struct fail *f)
{
    if (!current)
        return 0;
    struct watch *w = calloc(1, sizeof *w);
    if (w)
        w->source = map_source(map->size, fd);
    if (!w || !bus_errors_add(&w->range, map->data, map->size, w->source)) {
        if (w && w->source)
            munmap(w->source, map->size);
        free(w);
        return fail_system(f, "%s: out of memory", map->path);
    }
    w->path = map->path;
    w->status = *status;
    w->files = current;
    w->next = current->watches;
    current->watches = map->watch = w;
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
    return bus_errors_found(w->range) ? SYSTEM_FAILURE(f, "%s: could not be read to its end", w->path) : 0;
}

static void unwatch_map(const struct mapped *map)
{
    struct watch *w = map->watch, **at = &w->files->watches;
    struct fail f;
    if (!w->files->change && check(w, &f) != 0)
        w->files->change = strdup(f.message);
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    bus_errors_remove(w->range);
    if (w->source)
        munmap(w->source, map->size);
    free(w);
}

int mapped_check(struct fail *f)
{
    if (current && current->change)
        return SYSTEM_FAILURE(f, "%s", current->change);
    for (const struct watch *w = current ? current->watches : NULL; w; w = w->next)
        RETURN_IF_NOT_OK(check(w, f));
    return 0;
}

int mapped_cause(int status, struct fail *f)
{
    struct fail change = {.message = ""};
    if (status == QOBS_OK || status == QOBS_ERROR_OUT_OF_MEMORY || mapped_check(&change) == 0)
        return status;
    *f = change;
    return QOBS_ERROR_SYSTEM;
}

int mapped_hold(const struct mapped *map, size_t at, size_t size, struct fail *f)
{
    if (!bus_errors_hold(map->data + at, size))
        return fail_system(f, "%s: out of memory for %zu bytes", map->path, size);
    const bool missing = map->watch && bus_errors_found(map->watch->range);
    return missing ? check(map->watch, f) : 0;
}

int mapped_borrow(const void *at, size_t size, struct fail *f)
{
    RETURN_IF_NOT_OK(deferred_hold(at, size, READ_OFTEN, f));
    return bus_errors_hold(at, size) ? QOBS_OK : NO_MEMORY(f, "bytes of a file");
}

void mapped_release(const void *at, size_t size)
{
    bus_errors_release(at, size);
    deferred_release(at, size);
}

void mapped_files_begin(struct mapped_files *files)
{
    *files = (struct mapped_files){.outer = current};
    current = files;
}

void mapped_files_end(struct mapped_files *files)
{
    current = files->outer;
    if (current && !current->change)
        current->change = files->change;
    else
        free(files->change);
    free(files->read);
}

/* ---- Identities of files ----------------------------------------------------------------------------------------- */

struct file_identity {
    dev_t device;
    ino_t inode;
};

static int remember(const struct stat *status, const char *path, struct fail *f)
{
    const struct file_identity file = {status->st_dev, status->st_ino};
    for (struct mapped_files *m = current; m; m = m->outer)
        if (m->remembers && !list_append(&m->read, &m->read_count, sizeof file, &file))
            return fail_system(f, "%s: out of memory", path);
    return 0;
}

int mapped_remember_directory(const char *path, struct fail *f)
{
    struct stat status;
    return stat(path, &status) == 0 ? remember(&status, path, f) : 0;
}

bool mapped_was_read(const struct mapped_files *files, const struct stat *status)
{
    for (size_t i = 0; i < files->read_count; i++)
        if (files->read[i].device == status->st_dev && files->read[i].inode == status->st_ino)
            return true;
    return false;
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
    RETURN_IF_NOT_OK(remember(&status, path, f));
    map->size = (size_t)status.st_size;
    map->data = empty_data;
    if (map->size > 0) {
        void *data = mmap(NULL, map->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            return fail_system(f, "%s: cannot map %zu bytes: %s", path, map->size, strerror(errno));
        map->data = data;
        if (deferred_map(&status, data, map->size))
            return QOBS_OK;
        const int result = watch_map(map, &status, fd, f);
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
    if (result != 0) {
        free(made.path);
        return result;
    }
    *map = made;
    const int held = mapped_hold(map, 0, map->size < MAPPED_HEAD ? map->size : MAPPED_HEAD, f);
    if (held != 0)
        mapped_close(map);
    return held;
}

int mapped_open_whole(struct mapped *map, const char *path, struct fail *f)
{
    RETURN_IF_NOT_OK(mapped_open(map, path, f));
    const int result = mapped_hold(map, 0, map->size, f);
    if (result != 0)
        mapped_close(map);
    return result;
}

void mapped_close(struct mapped *map)
{
    if (map->watch)
        unwatch_map(map);
    if (map->data && map->size > 0) {
        deferred_unmap(map->data);
        munmap((void *)(uintptr_t)map->data, map->size);
    }
    free(map->path);
    *map = (struct mapped){0};
}
