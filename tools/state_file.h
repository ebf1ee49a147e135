/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Saves and loads the states of observers. */
#ifndef QOBS_TOOLS_STATE_FILE_H
#define QOBS_TOOLS_STATE_FILE_H

#include "files/output.h"
#include "program.h"

/* Writes a state to a file that output_commit makes appear. Zero-initialize *output; output_abort is needed in any
 * case. Returns an exit code. */
int state_begin(struct output *output, const qobs_observer *observer, const char *path);

/* Returns an exit code. */
int state_read(qobs_observer **observer, const char *path, const qobs_runtime *runtime);

#endif
