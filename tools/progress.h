/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A progress bar on standard error with elapsed time and the time that is left, and with the speed, or with the layer
 * in work if layers take longer than their bytes say. It is shown only if standard error is a terminal. */
#ifndef QOBS_TOOLS_PROGRESS_H
#define QOBS_TOOLS_PROGRESS_H

#include <stdbool.h>

#include "qobs/checkpoint.h"

struct progress {
    bool shown;
    double started, drawn; /* of the last drawing, in seconds since the start */
};

/* Shows what is done. It starts at the first call. One thread at a time may call it. */
void progress_update(struct progress *progress, const qobs_progress *done);

/* Removes the bar. */
void progress_stop(struct progress *progress);

#endif
