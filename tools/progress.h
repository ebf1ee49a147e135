/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A progress bar on standard error with speed, elapsed time and the time that is left. It is shown only if standard
 * error is a terminal. */
#ifndef QOBS_TOOLS_PROGRESS_H
#define QOBS_TOOLS_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown;
    uint64_t total;
    _Atomic uint64_t done;
    _Atomic uint64_t drawn; /* time of the last drawing, in milliseconds since the start */
    double started;
};

void progress_start(struct progress *progress, uint64_t total);
/* Any thread may call it. */
void progress_add(struct progress *progress, uint64_t amount);
/* Removes the bar. */
void progress_stop(struct progress *progress);

#endif
