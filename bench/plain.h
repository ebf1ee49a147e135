/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The kernels' work in plain C, as somebody would write it who leaves vectors to the compiler: tables like those of the
 * instruction sets, by which the benchmarks run them in the same way. Slots that no benchmark calls are NULL. */
#ifndef QOBS_BENCH_PLAIN_H
#define QOBS_BENCH_PLAIN_H

#include "kernels/kernels.h"

/* gcc -O3 with these -march; ends with NULL. */
extern const struct kernel_table *const plain_tables[];

#endif
