/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prints the report of qobs calibrate. */
#ifndef QOBS_TOOLS_CALIBRATE_TABLE_H
#define QOBS_TOOLS_CALIBRATE_TABLE_H

#include <stdbool.h>

#include "files/json.h"

/* Prints the ten layers that quantize worst, or all of them, and a summary to standard output. Returns an exit code. */
int calibrate_print(const json_object *report, bool all);

/* Prints warnings to standard error: modules whose scales are missing because nothing was recorded for them. Returns
 * false if there are any. */
bool calibrate_warn(const json_object *report);

#endif
