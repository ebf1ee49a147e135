/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A progress bar on standard error with speed, elapsed time and the time that is left. It is shown only if standard
 * error is a terminal. */
#ifndef QOBS_TOOLS_PROGRESS_H
#define QOBS_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown;
    uint64_t total;
    double started, drawn; /* of the last drawing, in seconds since the start */
};

/* Says how much of the total is done. It starts at the first call. One thread at a time may call it. */
void progress_update(struct progress *progress, uint64_t done, uint64_t total);

/* Removes the bar. */
void progress_stop(struct progress *progress);

#endif
