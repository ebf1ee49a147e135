/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prepared quantizers for other public functions. */
#pragma once

#include "qobs/quantizer.h"
#include "quantize/row_quantizer.h"

/* Checks all arguments but runtime, and makes a quantizer in memory of the caller. */
int qobs_row_quantizer_open(struct row_quantizer *quantizer, const qobs_quantizer_args *args,
                            const struct runtime *runtime, qobs_error *error);
