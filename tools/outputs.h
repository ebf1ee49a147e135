/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Checks of the files that a command writes: no output replaces an input or another output, under any name. */
#ifndef QOBS_TOOLS_OUTPUTS_H
#define QOBS_TOOLS_OUTPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "files/output.h"

/* Keeps from now on which files the run reads, for check_outputs. The main thread calls it once. */
void remember_inputs(void);

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

/* The file of --json REPORT. It is opened before the work begins, so that an unwritable path fails early. A regular
 * file is replaced when the report is complete; a pipe or a device is written to. */
struct report_file {
    const char *path; /* NULL: none; "-": standard output */
    FILE *device;     /* a pipe or a terminal, which rename cannot replace; else NULL */
    struct output output;
};

/* Steps in this order; each returns an exit code. report_write writes the text, report_publish makes it appear.
 * Zero-initialize *r first; report_close is needed in any case. */
int report_open(struct report_file *r, const char *path);
int report_write(struct report_file *r, const char *text);
int report_publish(struct report_file *r, const char *text);
void report_close(struct report_file *r);

#endif
