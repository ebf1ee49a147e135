/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Checks of the files that a command writes: no output replaces an input or another output, under any name. */
#ifndef QOBS_TOOLS_OUTPUTS_H
#define QOBS_TOOLS_OUTPUTS_H

#include <stdbool.h>
#include <stddef.h>

/* An option that names an output. */
struct output_option {
    const char *option, *path; /* "--out"; path NULL: not given */
    bool report;               /* may be a pipe, a device or "-", standard output */
};

/* Fails if an output is a directory or no regular file, if two are one file, and if one is a file that this run has
 * read. Call it when all inputs have been opened, and before that for an early answer. Returns an exit code. */
int check_outputs(const struct output_option *outputs, size_t count);

/* Fails if the output is `input`, or a file in it if that is a directory. With `below`, it may not lie in that
 * directory at all, not even as a new file. NULL as input: none. */
int check_output_apart(const struct output_option *output, const char *input, bool below);

#endif
