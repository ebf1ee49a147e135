/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Read-only memory maps of regular files. Every map of the program is made and unmade here, so this is the one place that
 * knows which addresses belong to which file. A file that is shortened while it is mapped raises SIGBUS where it is read. */
#ifndef QOBS_TOOLS_MAPPED_H
#define QOBS_TOOLS_MAPPED_H

#include <stddef.h>

#include "fail.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor files are little-endian and used in place"
#endif

struct mapped {
    char *path;                /* as given to mapped_open; owned */
    const unsigned char *data; /* never NULL while open, not even for an empty file */
    size_t size;
};

/* Maps all of `path`. Fails for what cannot be opened and for everything that is not a regular file, without waiting for a
 * pipe's writer. On failure *map is zeroed and needs no mapped_close. */
int mapped_open(struct mapped *map, const char *path, struct fail *f);

/* Unmaps and zeroes *map. Harmless on a zeroed one. */
void mapped_close(struct mapped *map);

#endif
