/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Saves and loads the states of observers. */
#ifndef QOBS_TOOLS_STATE_FILE_H
#define QOBS_TOOLS_STATE_FILE_H

#include "program.h"

/* Both return an exit code. The file at `path` appears when it is complete. */
int state_write(const qobs_observer *observer, const char *path);
int state_read(qobs_observer **observer, const char *path, const qobs_runtime *runtime);

#endif
