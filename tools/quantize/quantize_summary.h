/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The summary that qobs quantize prints at the end. */
#ifndef QOBS_TOOLS_QUANTIZE_SUMMARY_H
#define QOBS_TOOLS_QUANTIZE_SUMMARY_H

#include <stdbool.h>

/* Prints warnings to standard error, and to standard output the sizes, the tensors that were left out and the layers
 * with the largest errors: ten, or all of them. `report` is the JSON of qobs_checkpoint_quantize; seconds 0: not known.
 * Returns an exit code. It is EXIT_INCOMPLETE if no layer was quantized or the audit finds something, unless the output
 * has the bytes of upstream, which finds nothing wrong either. */
int quantize_summary(const char *report, double seconds, bool all_layers, bool quiet);

/* Prints what the audit finds as warnings, at most ten. `report` may be NULL. */
void quantize_print_findings(const char *report);

#endif
