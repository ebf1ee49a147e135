/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#ifndef QOBS_TOOLS_PLAN_TABLE_H
#define QOBS_TOOLS_PLAN_TABLE_H

#include <stdbool.h>

#include "files/json.h"

/* Prints the report of qobs_checkpoint_plan to standard output: the schemes, the ten layers that cost most, or all of
 * them, and the mixture. Returns an exit code. */
int plan_print(const json_object *report, bool all);

/* Prints warnings to standard error. Returns false if there are any. */
bool plan_warn(const json_object *report);

#endif
