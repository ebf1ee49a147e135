/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantizes and writes nothing. */
#pragma once

#include "files/fail.h"
#include "qobs/checkpoint.h"

/* Makes what qobs_checkpoint_quantize would write of the arguments, and compares it with the directory args->out, whose
 * other files are not looked at. Fails with FINDINGS, and says what is another, at the first difference. There are no
 * parts and no report. */
int quantize_compare(const qobs_checkpoint_quantize_args *args, struct fail *f);
