/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Read-only memory maps of regular files. All maps of the program are created and removed here.
 *
 * If a mapped file becomes shorter or its disk fails, the system raises SIGBUS in the thread that reads the map.
 * While a map exists, a SIGBUS handler replaces the missing pages with zeros, so that the program continues. Its
 * results are then invalid, and mapped_check reports the change before they are used. Threads that read maps must
 * not block SIGBUS. A SIGBUS from any other address goes to the previous action, and that action is restored when
 * the last map is closed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "files/fail.h"

/* Tests on big-endian machines map files with swapped bytes. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ && !defined(FILES_ARE_BIG_ENDIAN)
#error "tensor files are little-endian and used in place"
#endif

struct watch;

struct mapped {
    char *path;                /* the argument of mapped_open; owned */
    const unsigned char *data; /* not NULL while open, even if the file is empty */
    size_t size;
    struct watch *watch; /* for changes of the file; NULL if it is empty */
};

/* Maps the file `path`. Only one thread at a time may open or close maps. Fails if the file cannot be opened or is
 * not a regular file, and does not wait for the writer of a pipe. On failure *map is zeroed and needs no
 * mapped_close. */
int mapped_open(struct mapped *map, const char *path, struct fail *f);

/* Fails if a file that is or was mapped has become shorter, was written to, or could not be read. The message names
 * the file. */
int mapped_check(struct fail *f);

/* Keeps the identity of every file that is mapped from now on, for mapped_was_read. */
void mapped_remember(void);

/* Keeps the identity of a directory that is read as a whole, as that of files. */
int mapped_remember_directory(const char *path, struct fail *f);

/* Returns true if the file of that status is or was mapped since mapped_remember, or the directory was kept. */
bool mapped_was_read(const struct stat *status);

/* Returns true if both are one file, by device and inode. */
static inline bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Unmaps the file and zeroes *map. Does nothing if *map is zeroed. */
void mapped_close(struct mapped *map);
