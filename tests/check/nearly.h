/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The kernel hessian_nearly of a table against its contract in src/kernels/kernel_hessian.h: sums in double, within the
 * rounding that it promises. */
#ifndef QOBS_CHECK_NEARLY_H
#define QOBS_CHECK_NEARLY_H

#include <stdint.h>

#include "kernels/kernels.h"

/* Adds one that passed or failed. Returns the number of calls. */
uint64_t check_nearly(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                      unsigned *failed);

#endif
