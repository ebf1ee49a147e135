/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Read-only memory maps of regular files. Every map of the program is made and unmade here, so this is the one place that
 * knows which addresses belong to which file.
 *
 * Where a file has become shorter since it was mapped, or its disk fails, the system raises SIGBUS in whatever thread reads it.
 * While there is a map, a handler then puts zeros in place of what is missing, so that work goes on, in vain: mapped_check
 * says so before anything is made of it. Threads that read maps must not block SIGBUS. A SIGBUS from anywhere else goes to the
 * action there was before, which is back in its place when the last map is closed. */
#ifndef QOBS_TOOLS_MAPPED_H
#define QOBS_TOOLS_MAPPED_H

#include <stddef.h>

#include "fail.h"

/* Tests on big-endian machines map files that have been turned round. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ && !defined(FILES_ARE_BIG_ENDIAN)
#error "tensor files are little-endian and used in place"
#endif

struct watch;

struct mapped {
    char *path;                /* as given to mapped_open; owned */
    const unsigned char *data; /* never NULL while open, not even for an empty file */
    size_t size;
    struct watch *watch; /* NULL for an empty file */
};

/* Maps all of `path`. One thread at a time opens and closes. Fails for what cannot be opened and for everything that is not a regular file, without waiting for a
 * pipe's writer. On failure *map is zeroed and needs no mapped_close. */
int mapped_open(struct mapped *map, const char *path, struct fail *f);

/* Fails, naming the file, if one that is or was mapped has become shorter, been written to or could not be read since. */
int mapped_check(struct fail *f);

/* Unmaps and zeroes *map. Harmless on a zeroed one. */
void mapped_close(struct mapped *map);

#endif
