/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The superblock kernels of a table against the scalar one, which gets the same rows one by one as floats, next to
 * memory that may not be read or written. tests/test_gguf.c compares them with upstream. */
#ifndef QOBS_CHECK_SUPERBLOCK_H
#define QOBS_CHECK_SUPERBLOCK_H

#include "kernels/kernels.h"

/* Adds what passed and failed, one for each type; returns the number of calls. */
uint64_t check_superblocks(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                           unsigned *failed);

#endif
