/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names of unfinished files are in an array of atomic pointers, because signal handlers read them. */
#define _GNU_SOURCE /* renameat2, realpath */

#include "files/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/mapped.h"

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

const int output_signals[OUTPUT_SIGNALS] = {SIGHUP,  SIGINT,  SIGTERM,   SIGQUIT, SIGPIPE, SIGUSR1,
                                            SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGABRT};

enum { MAX_OUTPUTS = 16 };

/* Names of the temporary files that a signal removes. The handler may read them at any moment. */
static _Atomic(const char *) unfinished[MAX_OUTPUTS];

/* The process removes them on signals. Otherwise no name is kept, and any number of files may be written. */
static atomic_bool cleans;

static void remove_and_terminate(int signal_number)
{
    for (int i = 0; i < MAX_OUTPUTS; i++) {
        const char *name = atomic_load(&unfinished[i]);
        if (name)
            unlink(name);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number); /* delivered when the handler returns */
}

void output_clean_on_signals(void)
{
    atomic_store(&cleans, true);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the file-size limit then fails with EFBIG */
    struct sigaction action = {.sa_handler = remove_and_terminate}, before;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < OUTPUT_SIGNALS; i++)
        sigaddset(&action.sa_mask, output_signals[i]);
    for (int i = 0; i < OUTPUT_SIGNALS; i++)
        if (sigaction(output_signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(output_signals[i], &action, NULL);
}

static void block_signals(sigset_t *before)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    for (int i = 0; i < OUTPUT_SIGNALS; i++)
        sigaddset(&blocked, output_signals[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, before);
}

static int register_unfinished(const char *name)
{
    if (!atomic_load(&cleans))
        return 0;
    for (int i = 0; i < MAX_OUTPUTS; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&unfinished[i], &none, name))
            return 0;
    }
    return -1;
}

static void unregister_unfinished(const char *name)
{
    for (int i = 0; i < MAX_OUTPUTS; i++)
        if (atomic_load(&unfinished[i]) == name)
            atomic_store(&unfinished[i], NULL);
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* Sets output->path to `path` with symbolic links resolved, and *mode to that of the file, if there is one. */
static int resolve_path(struct output *output, const char *path, mode_t *mode, struct fail *f)
{
    struct stat status;
    const size_t length = strlen(path);
    if (length == 0 || path[length - 1] == '/')
        return SYSTEM_FAILURE(f, "'%s': is no name for a file", path);
    if (lstat(path, &status) != 0) {
        output->path = errno == ENOENT ? strdup(path) : NULL;
        return output->path ? 0 : SYSTEM_FAILURE(f, "%s: cannot write: %s", path, strerror(errno));
    }
    output->path = S_ISLNK(status.st_mode) ? realpath(path, NULL) : strdup(path);
    if (!output->path || stat(path, &status) != 0)
        return SYSTEM_FAILURE(f, "%s: cannot write: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return SYSTEM_FAILURE(f, "%s: is %s; only a regular file is replaced", path,
                              S_ISDIR(status.st_mode) ? "a directory" : "not a regular file");
    if (access(output->path, W_OK) != 0) /* rename() does not check the file's own permissions */
        return SYSTEM_FAILURE(f, "%s: cannot write: %s", path, strerror(errno));
    *mode = status.st_mode & 0777;
    return 0;
}

/* Uses open() instead of mkstemp() so that the kernel applies the umask. `mode` is that of the file that is replaced,
 * which stays; 0: it is new. */
static int make_temporary(struct output *output, const char *path, mode_t mode, struct fail *f)
{
    static atomic_uint made;
    const char *slash = strrchr(output->path, '/');
    const int directory = slash ? (int)(slash + 1 - output->path) : 0;
    const size_t size = strlen(output->path) + 64;
    char *name = malloc(size);
    if (!name)
        return fail_system(f, "%s: out of memory", path);
    sigset_t before;
    block_signals(&before); /* until the file is registered for removal */
    do {                    /* "%.200s": a file name has at most 255 bytes */
        snprintf(name, size, "%.*s%.200s.%ld-%u.tmp", directory, output->path, output->path + directory, (long)getpid(),
                 atomic_fetch_add(&made, 1));
        output->fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode ? 0600 : 0666);
    } while (output->fd < 0 && errno == EEXIST);
    int result = 0;
    if (output->fd < 0)
        result = SYSTEM_FAILURE(f, "%s: cannot write in its directory: %s", path, strerror(errno));
    else if (mode && fchmod(output->fd, mode) != 0)
        result = SYSTEM_FAILURE(f, "%s: cannot set its mode: %s", path, strerror(errno));
    else if (register_unfinished(name) != 0)
        result = SYSTEM_FAILURE(f, "%s: more than %d files are being written", path, MAX_OUTPUTS);
    if (result != 0 && output->fd >= 0) {
        close(output->fd);
        unlink(name);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result == 0)
        output->temporary = name;
    else
        free(name);
    return result;
}

/* Frees the names and unregisters the temporary file; it is renamed, removed or not made. */
static void release(struct output *output)
{
    if (output->temporary)
        unregister_unfinished(output->temporary);
    free(output->temporary);
    free(output->path);
    *output = (struct output){0};
}

int output_open(struct output *output, const char *path, struct fail *f)
{
    mode_t mode = 0;
    *output = (struct output){0};
    int result = resolve_path(output, path, &mode, f);
    if (result == 0)
        result = make_temporary(output, path, mode, f);
    if (result != 0)
        release(output);
    return result;
}

int output_try(const char *path, struct fail *f)
{
    struct output output;
    const int result = output_open(&output, path, f);
    output_abort(&output);
    return result;
}

int output_write(const struct output *output, const void *data, size_t bytes, uint64_t offset)
{
    for (const char *p = data; bytes > 0;) {
        const ssize_t done = pwrite(output->fd, p, bytes, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            errno = done < 0 ? errno : EIO;
            return -1;
        }
        p += done;
        bytes -= (size_t)done;
        offset += (uint64_t)done;
    }
    return 0;
}

/* Not all file systems have RENAME_NOREPLACE; those of a network have links. */
static int move(const struct output *output)
{
    if (!output->is_new)
        return rename(output->temporary, output->path);
    const int result = renameat2(AT_FDCWD, output->temporary, AT_FDCWD, output->path, RENAME_NOREPLACE);
    if (result == 0 || errno != EINVAL)
        return result;
    return link(output->temporary, output->path) == 0 ? unlink(output->temporary) : -1;
}

int output_commit(struct output *output, struct fail *f)
{
    const int fd = output->fd;
    int result = 0;
    output->fd = -1;
    if (close(fd) != 0)
        result = SYSTEM_FAILURE(f, "%s: cannot write: %s", output->path, strerror(errno));
    else if ((result = mapped_check(f)) == 0 && move(output) != 0)
        result = output->is_new && errno == EEXIST
                     ? SYSTEM_FAILURE(f, "%s: somebody else has written to it meanwhile", output->path)
                     : SYSTEM_FAILURE(f, "%s: cannot rename %s onto it: %s", output->path, output->temporary,
                                      strerror(errno));
    if (result == 0)
        release(output);
    else
        output_abort(output);
    return result;
}

void output_abort(struct output *output)
{
    if (output->temporary) {
        if (output->fd >= 0)
            close(output->fd);
        unlink(output->temporary);
    }
    release(output);
}
