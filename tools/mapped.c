/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* mmap refuses a length of 0; an empty file points here instead. */
static const unsigned char nothing[1];

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
    if (map->data && map->size > 0)
        munmap((void *)(uintptr_t)map->data, map->size);
    free(map->path);
    *map = (struct mapped){0};
}
