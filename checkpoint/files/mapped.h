/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Read-only memory maps of regular files, and what a call has read through them. A file that changes while it is mapped
 * makes results invalid, and mapped_check reports that before they are used. bus_errors.h says what happens if it
 * becomes shorter. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "files/fail.h"

/* Tests on big-endian machines map files with swapped bytes. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ && !defined(FILES_ARE_BIG_ENDIAN)
#error "tensor files are little-endian and used in place"
#endif

/* The files that one call reads. A call begins one, and the maps that its thread opens until the end belong to it. Any
 * number of calls may be under way, each in a thread of its own. */
struct mapped_files {
    struct mapped_files *outer; /* that of the caller in this thread, or NULL; it gets to know what the inner one saw */
    struct watch *watches;      /* of the maps that are open */
    char *change;               /* describes the first changed file whose map is closed already; NULL: none */
    bool remembers;             /* the identity of every file that is mapped from now on, for mapped_was_read */
    struct file_identity *read;
    size_t read_count;
};

/* Begins what the calling thread reads, in *files, until mapped_files_end in the same thread. */
void mapped_files_begin(struct mapped_files *files);

/* Ends it, after all of its maps are closed. */
void mapped_files_end(struct mapped_files *files);

struct watch;

struct mapped {
    char *path;                /* the argument of mapped_open; owned */
    const unsigned char *data; /* not NULL while open, even if the file is empty */
    size_t size;
    struct watch *watch; /* for changes of the file; NULL if it is empty, or if no call has begun */
};

/* The first bytes of a file, which are always held: its kind is found by them. */
enum { MAPPED_HEAD = 1 << 12 };

/* Maps the file `path`. The thread that opens a map closes it. Fails if the file cannot be opened or is
 * not a regular file, and does not wait for the writer of a pipe. On failure *map is zeroed and needs no
 * mapped_close. */
int mapped_open(struct mapped *map, const char *path, struct fail *f);

/* Maps a file of which every byte is read: all are held. */
int mapped_open_whole(struct mapped *map, const char *path, struct fail *f);

/* Makes bytes safe to read in place until the map is closed (bus_errors_hold). Fails if some are missing. */
int mapped_hold(const struct mapped *map, size_t at, size_t size, struct fail *f);

/* Holds bytes of any map until they are released as often. Missing ones are zeros, of which mapped_check tells. */
int mapped_borrow(const void *at, size_t size, struct fail *f);
void mapped_release(const void *at, size_t size);

/* Fails if a file that is or was mapped in this call has become shorter, was written to, or could not be read. The
 * message names the file. */
int mapped_check(struct fail *f);

/* Keeps the identity of a directory that is read as a whole, as that of files. */
int mapped_remember_directory(const char *path, struct fail *f);

/* Returns the status of a call and its failure: a changed file is the cause of any but a lack of memory. */
int mapped_cause(int status, struct fail *f);

/* Returns true if the file of that status is or was mapped since `files` began to remember, or the directory was kept.
 * From any thread, while the one that began `files` maps none. */
bool mapped_was_read(const struct mapped_files *files, const struct stat *status);

/* Returns true if both are one file, by device and inode. */
static inline bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Unmaps the file and zeroes *map. Does nothing if *map is zeroed. */
void mapped_close(struct mapped *map);
