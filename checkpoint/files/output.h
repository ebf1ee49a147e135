/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Output files that appear only when they are complete. The data goes to a temporary file in the same directory, and
 * that file is renamed to the output path at the end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "files/fail.h"

/* Zero-initialize it. */
struct output {
    char *path;      /* final path, symbolic links resolved; NULL while nothing is open */
    char *temporary; /* path of the temporary file */
    int fd;          /* of the temporary file, open for reading and writing */
    bool is_new;     /* another file of that name, made meanwhile, is not replaced */
};

/* Creates the temporary file, with the mode of the file that it replaces. Fails if `path` exists and is neither a
 * regular file nor a link to one. On failure *output is zeroed. */
int output_open(struct output *output, const char *path, struct fail *f);

/* Fails if output_open would fail now. */
int output_try(const char *path, struct fail *f);

/* Writes all `bytes` at `offset` of the temporary file. Any thread may call it. On failure errno holds the reason. */
int output_write(const struct output *output, const void *data, size_t bytes, uint64_t offset);

/* Renames the temporary file to its final path and zeroes *output. Fails, and removes the temporary file, if an
 * input file has changed since it was mapped (mapped_check), or if is_new is set and the path is there. */
int output_commit(struct output *output, struct fail *f);

/* Removes the temporary file and zeroes *output. Does nothing if *output is zeroed. */
void output_abort(struct output *output);

/* The signals that end a program and can be caught. */
enum { OUTPUT_SIGNALS = 12 };
extern const int output_signals[OUTPUT_SIGNALS];

/* Installs handlers: these signals remove every temporary file and then end the program. Signals that
 * were ignored stay ignored. All threads but the first must block these signals. SIGXFSZ is ignored from now on, so
 * that a write beyond the file-size limit fails with an error. */
void output_clean_on_signals(void);
