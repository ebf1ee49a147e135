/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The file of --json REPORT. It is opened before the work begins, so that an unwritable path fails early. */
#ifndef QOBS_TOOLS_REPORT_FILE_H
#define QOBS_TOOLS_REPORT_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "files/output.h"

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
