/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The quantizer of rows that the arguments of a prepared quantizer describe. */
#ifndef QOBS_API_OPEN_QUANTIZER_H
#define QOBS_API_OPEN_QUANTIZER_H

#include "base/runtime.h"
#include "qobs/quantizer.h"
#include "quantize/row_quantizer.h"

/* Checks all arguments but the runtime, and opens a quantizer that allocates nothing. */
int qobs_row_quantizer_open(struct row_quantizer *q, const qobs_quantizer_args *args, const struct runtime *runtime,
                            qobs_error *error);

#endif
