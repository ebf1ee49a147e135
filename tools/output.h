/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Files that appear when they are complete: the data goes to a temporary file beside the place, which is renamed onto it. */
#ifndef QOBS_TOOLS_OUTPUT_H
#define QOBS_TOOLS_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

#include "fail.h"

/* Zero it first. */
struct output {
    char *path;      /* where it is to appear, symbolic links followed; NULL while there is none */
    char *temporary; /* the file beside it */
    int fd;          /* of the temporary file, for reading and writing */
};

/* Creates the temporary file. What exists at `path` must be a regular file or a link to one. On failure *output is zeroed. */
int output_open(struct output *output, const char *path, struct fail *f);

/* All of the bytes at that offset of the temporary file. Any thread. Leaves the reason of a failure in errno. */
int output_write(const struct output *output, const void *data, size_t bytes, uint64_t offset);

/* The temporary file takes its place, unless a file that was read has changed meanwhile (mapped_check); *output is zeroed, as
 * after output_abort where that fails. */
int output_commit(struct output *output, struct fail *f);

/* Removes the temporary file. Harmless on a zeroed *output. */
void output_abort(struct output *output);

/* From now on SIGHUP, SIGINT and SIGTERM remove every temporary file before they end the program; those that were ignored
 * stay ignored. Threads other than the first must have them blocked. SIGXFSZ no longer ends it. */
void output_clean_on_signals(void);

#endif
