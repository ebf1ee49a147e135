/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The Gram and Hessian kernels of a table against the contract of src/kernels/kernel_hessian.h, restated entry by
 * entry. */
#ifndef QOBS_CHECK_GRAM_H
#define QOBS_CHECK_GRAM_H

#include <stdint.h>

#include "kernels/kernels.h"

/* Adds what passed and failed, a kernel each. Returns the number of calls. */
uint64_t check_gram(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                    unsigned *failed);

#endif
