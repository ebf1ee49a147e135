/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The JSON report of a run. */
#pragma once

#include "quantize/run.h"

/* Returns the report, to be freed with free(): sizes, layers with their errors, tensors that were left out, warnings,
 * findings of the audit. NULL: no memory. */
char *report_make(const struct quantize_run *run);

