/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Output directories that appear only when they are complete. Files are written to a staging directory beside the final
 * one, named ".NAME.unfinished-XXXXXX" and locked. It is renamed at the end. A process that is killed leaves it there;
 * the next run for the same directory removes it.
 * If the final directory is a mount point, or nothing can be created beside it, the staging directory lies in it. Its
 * entries then move up one by one, config.json last, so that no loader takes what is not complete. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "files/fail.h"

/* Zero-initialize it. */
struct output_directory {
    char *path;    /* final path, links resolved; NULL while nothing is open */
    char *staging; /* path of the staging directory */
    int lock;      /* descriptor of the staging directory */
    bool replace;
    bool compares;     /* nothing is written: the files are compared (output_compare.h) */
    bool inside;       /* the staging directory lies in the final one */
    const char *below; /* folder of the staging directory that gets the files; NULL: the directory itself */
};

/* Checks `path` and creates the staging directory. Fails if `path` is the directory `source`, lies below it or holds
 * it, by name or by inode; if it is a file; if it may not be written to; and if it holds files, unless `replace` is
 * true. A directory that is there keeps its mode. On failure *d is zeroed.
 */
int output_directory_open(struct output_directory *d, const char *path, const char *source, bool replace,
                          struct fail *f);

/* Makes the checks of output_directory_open and creates nothing. */
int output_directory_check(const char *path, const char *source, bool replace, struct fail *f);

/* Creates a file of `bytes` bytes, and the directories of its path. *fd receives its descriptor, which
 * output_directory_close closes. */
int output_directory_create(struct output_directory *d, const char *relative, uint64_t bytes, int *fd, struct fail *f);

/* Writes all `bytes` at `offset`. Any thread may call it. */
int output_directory_put(const struct output_directory *d, int fd, const void *data, size_t bytes, uint64_t offset,
                         struct fail *f);

/* Flushes the file to the disk and closes it. Any thread may call it. */
int output_directory_close(const struct output_directory *d, int fd, struct fail *f);

/* Writes a file with these contents. */
int output_directory_write(struct output_directory *d, const char *relative, const void *data, size_t bytes,
                           struct fail *f);

/* Copies the contents of a file in bounded memory. */
int output_directory_copy(struct output_directory *d, const char *relative, const char *source, struct fail *f);

/* Adds a file that is complete: by a hard link if the file system has them, else as a copy. */
int output_directory_link(struct output_directory *d, const char *relative, const char *source, struct fail *f);

/* Flushes the directories and renames the staging directory to the final path, and zeroes *d. Fails, and removes the
 * staging directory, if an input file has changed (mapped_check) or if somebody else has created the final path. */
int output_directory_commit(struct output_directory *d, struct fail *f);

/* Removes the staging directory and zeroes *d. Does nothing if *d is zeroed. */
void output_directory_abort(struct output_directory *d);

/* Removes a directory and everything below it. Links are removed, not followed. Goes on after failures. */
void output_directory_remove(const char *path);

/* ---- The place of a directory (output_place.c) ------------------------------------------------------------------- */

/* In the names of staging directories. */
#define OUTPUT_UNFINISHED ".unfinished-"

/* Returns the path without links and without "." and "..": of what is there, or of what will be. NULL: failure. */
char *output_place_resolve(const char *path, struct fail *f);

/* Returns true if the directory holds nothing but staging directories. *problem is an errno, 0 if it can be read. */
bool output_place_is_empty(const char *path, int *problem);

/* Makes the checks of output_directory_open. `resolved` is the resolved path. */
int output_place_check(const char *path, const char *resolved, const char *source, bool replace, struct fail *f);
