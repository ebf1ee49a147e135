/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Creates, locks and renames staging directories. output_directory_files.c fills them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* renameat2, realpath */
#endif

#include "files/output_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/mapped.h"

static char *joined(const char *directory, const char *name)
{
    const size_t size = strlen(directory) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", directory, name);
    return path;
}

/* ---- Removal ----------------------------------------------------------------------------------------------------- */

void output_directory_remove(const char *path)
{
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        struct stat status;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *below = joined(path, entry->d_name);
        if (below && lstat(below, &status) == 0 && S_ISDIR(status.st_mode))
            output_directory_remove(below);
        else if (below)
            unlink(below);
        free(below);
    }
    if (directory)
        closedir(directory);
    rmdir(path);
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* Returns true if `upper` is `path` or a directory above it, by device and inode. */
static bool is_at_or_above(const struct stat *upper, const char *path)
{
    char *at = strdup(path);
    bool found = false;
    while (at && !found) {
        struct stat status;
        found = stat(at, &status) == 0 && status.st_dev == upper->st_dev && status.st_ino == upper->st_ino;
        char *slash = strrchr(at, '/');
        if (strcmp(at, "/") == 0 || !slash)
            break;
        slash[slash == at] = '\0';
    }
    free(at);
    return found;
}

static bool is_empty(const char *path, int *problem)
{
    DIR *directory = opendir(path);
    bool empty = true;
    *problem = directory ? 0 : errno;
    for (struct dirent *entry; directory && empty && (entry = readdir(directory));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (directory)
        closedir(directory);
    return empty;
}

/* Returns the path without links and without "." and "..": of what is there, or of what will be. NULL: failure. */
static char *resolve(const char *path, struct fail *f)
{
    char *trimmed = strdup(path), *resolved = NULL;
    size_t length = trimmed ? strlen(trimmed) : 0;
    while (length > 1 && trimmed[length - 1] == '/')
        trimmed[--length] = '\0';
    struct stat status;
    if (length == 0) {
        fail(f, "the output directory has no name");
    } else if (lstat(trimmed, &status) == 0) {
        resolved = realpath(trimmed, NULL);
        if (!resolved)
            fail(f, "%s: cannot be used: %s", path, strerror(errno));
    } else {
        char *slash = strrchr(trimmed, '/');
        const char *name = slash ? slash + 1 : trimmed;
        if (slash && slash != trimmed)
            *slash = '\0';
        char *parent = realpath(!slash ? "." : slash == trimmed ? "/" : trimmed, NULL);
        if (!parent)
            fail(f, "%s: its directory cannot be used: %s", path, strerror(errno));
        else if (!(resolved = joined(strcmp(parent, "/") == 0 ? "" : parent, name)))
            fail(f, "%s: no memory for its name", path);
        free(parent);
    }
    free(trimmed);
    return resolved;
}

static int check_place(const char *path, const char *resolved, const char *source, bool replace, struct fail *f)
{
    struct stat of_source, of_output;
    int problem;
    char *real_source = realpath(source, NULL);
    if (!real_source || stat(real_source, &of_source) != 0) {
        free(real_source);
        return fail(f, "%s: cannot be read: %s", source, strerror(errno));
    }
    const bool exists = stat(resolved, &of_output) == 0;
    const bool below = is_at_or_above(&of_source, resolved) || strcmp(resolved, real_source) == 0;
    const bool above = exists && is_at_or_above(&of_output, real_source);
    free(real_source);
    if (below || above)
        return fail(f, "%s: is the model %s, lies in it or holds it; another directory is needed", path, source);
    if (!exists)
        return 0;
    if (!S_ISDIR(of_output.st_mode))
        return fail(f, "%s: is a file; a directory that is new or empty is needed", path);
    const bool empty = is_empty(resolved, &problem);
    if (problem)
        return fail(f, "%s: cannot be read: %s", path, strerror(problem));
    return empty || replace ? 0 : fail(f, "%s: holds files already; --replace replaces the whole directory", path);
}

/* ---- Staging ----------------------------------------------------------------------------------------------------- */

static const char unfinished[] = ".unfinished-";

/* Removes staging directories that dead processes have left for the same output. */
static void remove_stale(const char *parent, const char *name)
{
    DIR *directory = opendir(parent);
    const size_t length = strlen(name);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        const char *n = entry->d_name;
        if (n[0] != '.' || strncmp(n + 1, name, length) != 0 ||
            strncmp(n + 1 + length, unfinished, strlen(unfinished)) != 0)
            continue;
        char *path = joined(parent, n);
        const int fd = path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            output_directory_remove(path);
        if (fd >= 0)
            close(fd);
        free(path);
    }
    if (directory)
        closedir(directory);
}

/* Splits a resolved path into its directory and its name, which follows it. */
static const char *split_name(char *path)
{
    char *slash = strrchr(path, '/');
    *slash = '\0';
    return slash + 1;
}

static int make_staging(struct output_directory *d, const char *path, struct fail *f)
{
    const size_t size = strlen(d->path) + 64;
    char *copy = strdup(d->path);
    d->staging = malloc(size);
    if (!copy || !d->staging) {
        free(copy);
        return fail(f, "%s: no memory for its name", path);
    }
    const char *name = split_name(copy), *parent = *copy ? copy : "/";
    remove_stale(parent, name);
    snprintf(d->staging, size, "%s/.%.200s%sXXXXXX", *copy ? copy : "", name, unfinished);
    free(copy);
    const mode_t mask = umask(0);
    umask(mask);
    if (!mkdtemp(d->staging)) {
        const int reason = errno;
        free(d->staging);
        d->staging = NULL;
        return fail(f, "%s: cannot write in its directory: %s", path, strerror(reason));
    }
    d->lock = open(d->staging, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->lock < 0 || flock(d->lock, LOCK_EX | LOCK_NB) != 0 || fchmod(d->lock, 0777 & ~mask) != 0)
        return fail(f, "%s: cannot write in its directory: %s", path, strerror(errno));
    return 0;
}

int output_directory_check(const char *path, const char *source, bool replace, struct fail *f)
{
    char *resolved = resolve(path, f);
    const int result = resolved ? check_place(path, resolved, source, replace, f) : -1;
    free(resolved);
    return result;
}

int output_directory_open(struct output_directory *d, const char *path, const char *source, bool replace,
                          struct fail *f)
{
    *d = (struct output_directory){.path = resolve(path, f), .lock = -1, .replace = replace};
    if (d->path && check_place(path, d->path, source, replace, f) == 0 && make_staging(d, path, f) == 0)
        return 0;
    output_directory_abort(d);
    return -1;
}

/* ---- Completion -------------------------------------------------------------------------------------------------- */

/* Flushes a directory and the directories below it. */
static void flush_directories(const char *path)
{
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        struct stat status;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *below = joined(path, entry->d_name);
        if (below && lstat(below, &status) == 0 && S_ISDIR(status.st_mode))
            flush_directories(below);
        free(below);
    }
    const int fd = directory ? dirfd(directory) : -1;
    if (fd >= 0)
        fsync(fd);
    if (directory)
        closedir(directory);
}

/* Replaces a directory that holds files. Both names exist at every moment. */
static int swap(const struct output_directory *d, struct fail *f)
{
#ifdef RENAME_EXCHANGE
    if (renameat2(AT_FDCWD, d->staging, AT_FDCWD, d->path, RENAME_EXCHANGE) == 0) {
        output_directory_remove(d->staging);
        return 0;
    }
#endif
    char *aside = joined(d->staging, "../.replaced");
    if (!aside)
        return fail(f, "%s: no memory for a path", d->path);
    snprintf(aside, strlen(aside) + 1, "%s.old", d->staging); /* shorter than the path above */
    int result = rename(d->path, aside);
    if (result == 0 && rename(d->staging, d->path) != 0) {
        const int reason = errno;
        rename(aside, d->path);
        errno = reason;
        result = -1;
    }
    if (result == 0)
        output_directory_remove(aside);
    else
        fail(f, "%s: cannot be replaced: %s", d->path, strerror(errno));
    free(aside);
    return result == 0 ? 0 : -1;
}

static void release(struct output_directory *d)
{
    if (d->staging && d->lock >= 0)
        close(d->lock);
    free(d->staging);
    free(d->path);
    *d = (struct output_directory){.lock = -1};
}

int output_directory_commit(struct output_directory *d, struct fail *f)
{
    int problem = 0, result = mapped_check(f);
    flush_directories(d->staging);
    const bool there = result == 0 && access(d->path, F_OK) == 0;
    if (there && d->replace && !is_empty(d->path, &problem) && !problem)
        result = swap(d, f);
    else if (result == 0 && rename(d->staging, d->path) != 0)
        result = errno == ENOTEMPTY || errno == EEXIST
                     ? fail(f, "%s: somebody else has written to it meanwhile", d->path)
                     : fail(f, "%s: cannot rename %s to it: %s", d->path, d->staging, strerror(errno));
    if (result != 0) {
        output_directory_abort(d);
        return -1;
    }
    char *copy = strdup(d->path);
    if (copy) {
        split_name(copy);
        const int parent = open(*copy ? copy : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent >= 0) {
            fsync(parent);
            close(parent);
        }
    }
    free(copy);
    release(d);
    return 0;
}

void output_directory_abort(struct output_directory *d)
{
    if (d->staging)
        output_directory_remove(d->staging);
    release(d);
}
