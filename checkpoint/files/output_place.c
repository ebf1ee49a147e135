/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Resolves paths and compares them by device and inode. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* realpath */
#endif

#include "files/output_directory.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/mapped.h"
#include "files/text.h"

/* Returns true if `upper` is `path` or a directory above it, by device and inode. */
static bool is_at_or_above(const struct stat *upper, const char *path)
{
    OWNED char *at = strdup(path);
    bool found = false;
    while (at && !found) {
        struct stat status;
        found = stat(at, &status) == 0 && is_same_file(&status, upper);
        char *slash = strrchr(at, '/');
        if (strcmp(at, "/") == 0 || !slash)
            break;
        slash[slash == at] = '\0';
    }
    return found;
}

bool output_place_is_empty(const char *path, int *problem)
{
    OWNED_DIRECTORY DIR *directory = opendir(path);
    bool empty = true;
    *problem = directory ? 0 : errno;
    for (struct dirent *entry; directory && empty && (entry = readdir(directory));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                (entry->d_name[0] == '.' && strstr(entry->d_name, OUTPUT_UNFINISHED));
    return empty;
}

char *output_place_resolve(const char *path, struct fail *f)
{
    OWNED char *trimmed = strdup(path), *parent = NULL;
    char *resolved = NULL;
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
    } else if (errno == ENAMETOOLONG) {
        fail(f, "%s: %s", path, strerror(errno));
    } else {
        char *slash = strrchr(trimmed, '/');
        const char *name = slash ? slash + 1 : trimmed;
        if (slash && slash != trimmed)
            *slash = '\0';
        parent = realpath(!slash ? "." : slash == trimmed ? "/" : trimmed, NULL);
        if (!parent)
            fail(f, "%s: its directory cannot be used: %s", path, strerror(errno));
        else if (!(resolved = text_format("%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name)))
            fail_system(f, "%s: no memory for its name", path);
    }
    return resolved;
}

int output_place_check(const char *path, const char *resolved, const char *source, bool replace, struct fail *f)
{
    struct stat of_source, of_output;
    int problem;
    OWNED char *real_source = realpath(source, NULL);
    if (!real_source || stat(real_source, &of_source) != 0)
        return fail(f, "%s: cannot be read: %s", source, strerror(errno));
    const bool exists = stat(resolved, &of_output) == 0;
    const bool below = is_at_or_above(&of_source, resolved) || strcmp(resolved, real_source) == 0;
    const bool above = exists && is_at_or_above(&of_output, real_source);
    if (below || above)
        return fail(f, "%s: is the model %s, lies in it or holds it; another directory is needed", path, source);
    if (!exists)
        return 0;
    if (!S_ISDIR(of_output.st_mode))
        return fail(f, "%s: is a file; a directory that is new or empty is needed", path);
    const bool empty = output_place_is_empty(resolved, &problem);
    if (problem)
        return fail(f, "%s: cannot be read: %s", path, strerror(problem));
    if (access(resolved, W_OK) != 0)
        return fail(f, "%s: may not be written to: %s", path, strerror(errno));
    return empty || replace ? 0 : fail(f, "%s: holds files already; --replace replaces the whole directory", path);
}
