/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The histogram kernels of a table against the contract of src/kernels/, restated in double arithmetic. */
#ifndef QOBS_CHECK_HISTOGRAM_H
#define QOBS_CHECK_HISTOGRAM_H

#include <stdint.h>

#include "kernels/kernels.h"

/* Adds what passed and failed, an aspect of an element type each. Returns the number of calls. */
uint64_t check_histograms(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                          unsigned *failed);

#endif
