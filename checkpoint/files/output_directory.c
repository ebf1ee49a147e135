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
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/mapped.h"
#include "files/text.h"

/* ---- Removal ----------------------------------------------------------------------------------------------------- */

enum { OPEN_DIRECTORIES = 16 };

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    remove(path);
    return 0;
}

void output_directory_remove(const char *path) { nftw(path, remove_entry, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS); }

/* ---- Staging ----------------------------------------------------------------------------------------------------- */

/* Removes staging directories that dead processes have left for the same output. */
static void remove_stale(const char *parent, const char *name)
{
    OWNED_DIRECTORY DIR *directory = opendir(parent);
    const size_t length = strlen(name);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        const char *n = entry->d_name;
        if (n[0] != '.' || strncmp(n + 1, name, length) != 0 ||
            strncmp(n + 1 + length, OUTPUT_UNFINISHED, strlen(OUTPUT_UNFINISHED)) != 0)
            continue;
        OWNED char *path = path_join(parent, n);
        OWNED_DESCRIPTOR const int fd = path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            output_directory_remove(path);
    }
}

/* Splits a resolved path into its directory and its name, which follows it. */
static const char *split_name(char *path)
{
    char *slash = strrchr(path, '/');
    *slash = '\0';
    return slash + 1;
}

/* Returns true if the directory cannot be renamed to: a mount point, or one in a directory that may not be written. */
static bool is_fixed(const char *path, const char *parent)
{
    struct stat of_path, of_parent;
    if (stat(path, &of_path) != 0 || stat(parent, &of_parent) != 0)
        return false;
    return of_path.st_dev != of_parent.st_dev || access(parent, W_OK | X_OK) != 0;
}

/* Makes the staging directory in `parent`, under a name of its own. mkdir() applies the umask, which belongs to all
 * threads of the process. */
static int make_directory(struct output_directory *d, const char *parent, const char *name, const char *path,
                          struct fail *f)
{
    static atomic_uint made;
    do {
        free(d->staging);
        d->staging = text_format("%s/.%.200s%s%ld-%u", parent, name, OUTPUT_UNFINISHED, (long)getpid(),
                                 atomic_fetch_add(&made, 1));
        if (!d->staging)
            return fail_system(f, "%s: no memory for its name", path);
        if (mkdir(d->staging, 0777) == 0)
            return 0;
    } while (errno == EEXIST);
    const int reason = errno;
    free(d->staging);
    d->staging = NULL;
    return fail(f, "%s: cannot write in its directory: %s", path, strerror(reason));
}

static int make_staging(struct output_directory *d, const char *path, struct fail *f)
{
    OWNED char *copy = strdup(d->path);
    if (!copy)
        return fail_system(f, "%s: no memory for its name", path);
    const char *name = split_name(copy), *parent = *copy ? copy : "/";
    d->inside = is_fixed(d->path, parent);
    remove_stale(d->inside ? d->path : parent, name);
    RETURN_IF_NOT_OK(make_directory(d, d->inside ? d->path : copy, name, path, f));
    struct stat status;
    const bool replaces = stat(d->path, &status) == 0;
    d->lock = open(d->staging, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->lock < 0 || flock(d->lock, LOCK_EX | LOCK_NB) != 0 ||
        (replaces && fchmod(d->lock, status.st_mode & 0777) != 0))
        return fail(f, "%s: cannot write in its directory: %s", path, strerror(errno));
    return 0;
}

int output_directory_check(const char *path, const char *source, bool replace, struct fail *f)
{
    OWNED char *resolved = output_place_resolve(path, f);
    return resolved ? output_place_check(path, resolved, source, replace, f) : failure_status(f);
}

int output_directory_open(struct output_directory *d, const char *path, const char *source, bool replace,
                          struct fail *f)
{
    *d = (struct output_directory){.path = output_place_resolve(path, f), .lock = -1, .replace = replace};
    int result = d->path ? output_place_check(path, d->path, source, replace, f) : failure_status(f);
    if (result == 0)
        result = make_staging(d, path, f);
    if (result != 0)
        output_directory_abort(d);
    return result;
}

/* ---- Completion -------------------------------------------------------------------------------------------------- */

/* Flushes a directory. */
static int flush_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    OWNED_DESCRIPTOR const int fd = kind == FTW_DP ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    (void)status;
    (void)place;
    if (fd >= 0)
        fsync(fd);
    return 0;
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
    OWNED char *aside = text_format("%s.old", d->staging);
    if (!aside)
        return fail_system(f, "%s: no memory for a path", d->path);
    int result = rename(d->path, aside);
    if (result == 0 && rename(d->staging, d->path) != 0) {
        const int reason = errno;
        rename(aside, d->path);
        errno = reason;
        result = -1;
    }
    if (result != 0)
        return SYSTEM_FAILURE(f, "%s: cannot be replaced: %s", d->path, strerror(errno));
    output_directory_remove(aside);
    return 0;
}

/* Moves one entry of the staging directory up. */
static int move_up(const struct output_directory *d, const char *name, struct fail *f)
{
    OWNED char *from = path_join(d->staging, name), *to = path_join(d->path, name);
    return (from && to ? rename(from, to) : (errno = ENOMEM, -1)) == 0
               ? 0
               : SYSTEM_FAILURE(f, "%s: cannot move %s into it: %s", d->path, name, strerror(errno));
}

/* Moves or removes the entries of a directory: config.json first if it is removed, last if it is moved. */
static int move_entries(const struct output_directory *d, bool remove_old, struct fail *f)
{
    static const char config[] = "config.json";
    const char *path = remove_old ? d->path : d->staging, *own = strrchr(d->staging, '/') + 1;
    OWNED_DIRECTORY DIR *directory = opendir(path);
    if (!directory)
        return SYSTEM_FAILURE(f, "%s: cannot be read: %s", path, strerror(errno));
    OWNED char *first = remove_old ? path_join(path, config) : NULL, *last = path_join(d->staging, config);
    if (first)
        unlink(first);
    for (struct dirent *entry; (entry = readdir(directory));) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, own) == 0 || strcmp(name, config) == 0)
            continue;
        OWNED char *old = remove_old ? path_join(path, name) : NULL;
        if (old && unlink(old) != 0)
            output_directory_remove(old);
        if (!remove_old)
            RETURN_IF_NOT_OK(move_up(d, name, f));
    }
    return !remove_old && last && access(last, F_OK) == 0 ? move_up(d, config, f) : 0;
}

/* Fills a directory that cannot be renamed to. */
static int fill(const struct output_directory *d, struct fail *f)
{
    int problem;
    if (!output_place_is_empty(d->path, &problem)) {
        if (!d->replace)
            return SYSTEM_FAILURE(f, "%s: somebody else has written to it meanwhile", d->path);
        RETURN_IF_NOT_OK(move_entries(d, true, f));
    }
    RETURN_IF_NOT_OK(move_entries(d, false, f));
    rmdir(d->staging);
    return 0;
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
    nftw(d->staging, flush_entry, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS);
    const bool there = result == 0 && access(d->path, F_OK) == 0;
    if (result == 0 && d->inside)
        result = fill(d, f);
    else if (there && d->replace && !output_place_is_empty(d->path, &problem) && !problem)
        result = swap(d, f);
    else if (result == 0 && rename(d->staging, d->path) != 0)
        result = errno == ENOTEMPTY || errno == EEXIST
                     ? SYSTEM_FAILURE(f, "%s: somebody else has written to it meanwhile", d->path)
                     : SYSTEM_FAILURE(f, "%s: cannot rename %s to it: %s", d->path, d->staging, strerror(errno));
    OWNED char *copy = result == 0 ? strdup(d->path) : NULL;
    if (copy) {
        split_name(copy);
        flush_entry(*copy ? copy : "/", NULL, FTW_DP, NULL);
    }
    if (result == 0)
        release(d);
    else
        output_directory_abort(d);
    return result;
}

void output_directory_abort(struct output_directory *d)
{
    if (d->staging)
        output_directory_remove(d->staging);
    release(d);
}
