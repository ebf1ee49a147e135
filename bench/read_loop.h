/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#ifndef QOBS_BENCH_READ_LOOP_H
#define QOBS_BENCH_READ_LOOP_H

#include <stddef.h>
#include <stdint.h>

/* All of `data`, 8-byte aligned, or-ed together. */
uint64_t read_loop(const void *data, size_t bytes);

#endif
