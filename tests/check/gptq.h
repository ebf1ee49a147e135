/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The block of GPTQ of a table against the contract of src/kernels/, restated element by element. */
#ifndef QOBS_CHECK_GPTQ_H
#define QOBS_CHECK_GPTQ_H

#include <stdint.h>

#include "kernels/kernels.h"

/* Adds what passed and failed, a type of scales each. Returns the number of calls. */
uint64_t check_gptq(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                    unsigned *failed);

#endif
