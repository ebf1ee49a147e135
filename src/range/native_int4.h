/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Tables for bounds of int4 errors in 16-bit integers. */
#pragma once

#include "kernels/kernel_search.h"

/* A power and the sum are each rounded by a factor of at least 1 - 2^-8. The rest is for the rounding of the bound
 * itself. Errors of int4 without zero points are numbers of BF16, so that they are not rounded. */
#define NATIVE_INT4_ROUNDING ((1 - 0x1p-8) * (1 - 0x1p-8) * (1 - 0x1p-12))

/* Says whether there are such tables for the norm p and these limits: for int4 without zero points. */
bool qobs_native_int4_applies(double p, double quant_min, double quant_max);
void qobs_native_int4_make(double p, int quant_min, int quant_max, struct native_int4 *tables);
