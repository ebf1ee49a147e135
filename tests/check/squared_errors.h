/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The squared_errors kernels of a table against a loop over their 16 sums, next to memory that may not be read. */
#ifndef QOBS_CHECK_SQUARED_ERRORS_H
#define QOBS_CHECK_SQUARED_ERRORS_H

#include "kernels/kernels.h"

/* Adds what passed and failed; returns the number of calls. */
uint64_t check_squared_errors(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                              unsigned *failed);

#endif
