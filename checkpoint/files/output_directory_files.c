/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Creates and fills the files of a staging directory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/output.h"
#include "files/output_compare.h"
#include "files/output_directory.h"
#include "files/text.h"

/* Makes the path of a file in the staging directory, to be freed in any case, and the directories above it. */
static int make_path(char **made, const struct output_directory *d, const char *relative, struct fail *f)
{
    char *path = text_format("%s/%s%s%s", d->staging, d->below ? d->below : "", d->below ? "/" : "", relative);
    int result = path ? 0 : fail_system(f, "%s: no memory for a path", d->path);
    for (char *p = path ? path + strlen(d->staging) + 1 : NULL; result == 0 && (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            result = SYSTEM_FAILURE(f, "%s: cannot create the directory of %s: %s", d->path, relative, strerror(errno));
    }
    *made = path;
    return result;
}

int output_directory_create(struct output_directory *d, const char *relative, uint64_t bytes, int *fd, struct fail *f)
{
    OWNED char *path = NULL;
    if (d->compares)
        return output_compare_open(d, relative, bytes, fd, f);
    RETURN_IF_NOT_OK(make_path(&path, d, relative, f));
    *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*fd < 0)
        return SYSTEM_FAILURE(f, "%s: cannot create %s: %s", d->path, relative, strerror(errno));
    if (ftruncate(*fd, (off_t)bytes) == 0)
        return 0;
    const int reason = errno;
    close(*fd);
    return SYSTEM_FAILURE(f, "%s: cannot write %s: %s", d->path, relative, strerror(reason));
}

int output_directory_put(const struct output_directory *d, int fd, const void *data, size_t bytes, uint64_t offset,
                         struct fail *f)
{
    const struct output file = {.fd = fd};
    if (d->compares)
        return output_compare_put(fd, data, bytes, offset, f);
    return output_write(&file, data, bytes, offset) == 0
               ? 0
               : SYSTEM_FAILURE(f, "%s: cannot write: %s", d->path, strerror(errno));
}

int output_directory_close(const struct output_directory *d, int fd, struct fail *f)
{
    const int flushed = d->compares ? 0 : fsync(fd), reason = errno;
    /* Some file systems cannot flush; they report EINVAL. */
    const bool failed = flushed != 0 && reason != EINVAL;
    if (close(fd) != 0 && !failed)
        return SYSTEM_FAILURE(f, "%s: cannot write: %s", d->path, strerror(errno));
    return failed ? SYSTEM_FAILURE(f, "%s: cannot write: %s", d->path, strerror(reason)) : 0;
}

int output_directory_write(struct output_directory *d, const char *relative, const void *data, size_t bytes,
                           struct fail *f)
{
    int fd;
    RETURN_IF_NOT_OK(output_directory_create(d, relative, bytes, &fd, f));
    const int result = output_compare_name(relative, output_directory_put(d, fd, data, bytes, 0, f), f);
    const int closed = output_directory_close(d, fd, result == 0 ? f : NULL);
    return result == 0 ? closed : result;
}

int output_directory_copy(struct output_directory *d, const char *relative, const char *source, struct fail *f)
{
    enum { CHUNK = 1 << 20 };
    int to, result = 0;
    OWNED_DESCRIPTOR const int from = open(source, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (from < 0)
        return SYSTEM_FAILURE(f, "%s: cannot be read: %s", source, strerror(errno));
    OWNED char *chunk = malloc(CHUNK);
    if (!chunk)
        return fail_system(f, "%s: no memory for a copy of %s", d->path, relative);
    RETURN_IF_NOT_OK(output_directory_create(d, relative, 0, &to, f));
    uint64_t at = 0;
    while (result == 0) {
        const ssize_t done = read(from, chunk, CHUNK);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            result = SYSTEM_FAILURE(f, "%s: cannot be read: %s", source, strerror(errno));
        if (done <= 0)
            break;
        result = output_compare_name(relative, output_directory_put(d, to, chunk, (size_t)done, at, f), f);
        at += (uint64_t)done;
    }
    if (result == 0 && d->compares)
        result = output_compare_size(relative, to, at, f);
    const int closed = output_directory_close(d, to, result == 0 ? f : NULL);
    return result == 0 ? closed : result;
}

int output_directory_link(struct output_directory *d, const char *relative, const char *source, struct fail *f)
{
    OWNED char *path = NULL;
    RETURN_IF_NOT_OK(make_path(&path, d, relative, f));
    return linkat(AT_FDCWD, source, AT_FDCWD, path, 0) == 0 ? 0 : output_directory_copy(d, relative, source, f);
}
