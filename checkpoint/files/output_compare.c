/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* An output directory that is there takes part in a run that writes nothing: each byte is compared instead. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/mapped.h"
#include "files/output_compare.h"
#include "files/text.h"

int output_compare_start(struct output_directory *d, const char *path, struct fail *f)
{
    *d = (struct output_directory){.path = output_place_resolve(path, f), .lock = -1, .compares = true};
    return d->path ? 0 : failure_status(f);
}

int output_compare_size(const char *relative, int fd, uint64_t bytes, struct fail *f)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return SYSTEM_FAILURE(f, "%s: cannot be read: %s", relative, strerror(errno));
    return S_ISREG(status.st_mode) && (uint64_t)status.st_size == bytes
               ? 0
               : report_failure(f, QOBS_ERROR_FINDINGS, "%s has %" PRIu64 " bytes, expected %" PRIu64, relative,
                                (uint64_t)status.st_size, bytes);
}

int output_compare_open(const struct output_directory *d, const char *relative, uint64_t bytes, int *fd, struct fail *f)
{
    OWNED char *path = path_join(d->path, relative);
    if (!path)
        return fail_system(f, "%s: no memory for a path", d->path);
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 && errno == ENOENT)
        return report_failure(f, QOBS_ERROR_FINDINGS, "%s is missing", relative);
    if (*fd < 0)
        return SYSTEM_FAILURE(f, "%s: cannot be read: %s", path, strerror(errno));
    const int status = bytes > 0 ? output_compare_size(relative, *fd, bytes, f) : 0;
    if (status != 0)
        close(*fd);
    return status;
}

/* The bytes that are expected may lie in a map of a file that becomes shorter. */
static int compare(const void *found, const void *expected, size_t bytes, struct fail *f)
{
    RETURN_IF_NOT_OK(mapped_borrow(expected, bytes, f));
    const bool equal = memcmp(found, expected, bytes) == 0;
    mapped_release(expected, bytes);
    return equal ? 0 : report_failure(f, QOBS_ERROR_FINDINGS, "differs");
}

int output_compare_put(int fd, const void *data, size_t bytes, uint64_t offset, struct fail *f)
{
    enum { CHUNK = 1 << 16 };
    const unsigned char *expected = data;
    OWNED unsigned char *chunk = malloc(CHUNK);
    if (!chunk)
        return fail_system(f, "no memory for a comparison");
    for (size_t at = 0; at < bytes;) {
        const ssize_t done = pread(fd, chunk, bytes - at < CHUNK ? bytes - at : CHUNK, (off_t)(offset + at));
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return SYSTEM_FAILURE(f, "cannot be read: %s", strerror(errno));
        if (done == 0)
            return report_failure(f, QOBS_ERROR_FINDINGS, "differs");
        RETURN_IF_NOT_OK(compare(chunk, expected + at, (size_t)done, f));
        at += (size_t)done;
    }
    return 0;
}

int output_compare_name(const char *what, int status, struct fail *f)
{
    return status == QOBS_ERROR_FINDINGS ? report_failure(f, status, "%s differs", what) : status;
}
