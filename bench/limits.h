/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Loops that do nothing but what a core can do at best. */
#ifndef QOBS_BENCH_LIMITS_H
#define QOBS_BENCH_LIMITS_H

#include <stddef.h>
#include <stdint.h>

struct limits {
    const char *isa;
    /* All of `data`, 8-byte aligned, or-ed together, by the widest loads: the read loop. */
    uint64_t (*read)(const void *data, size_t bytes);
    /* counters[index[i]]++ for n indices, one after the other; index stays as it is in the first-level cache. */
    void (*count)(uint32_t *counters, const uint32_t *index, size_t n);
    /* At least n multiply-adds of floats, as many in a vector as it holds, in enough chains to keep all units busy; *done: how many. */
    float (*multiply_add)(size_t n, size_t *done);
};

/* One per instruction set of the library, in the same order; the caller looks first whether it may run. Ends with NULL. */
extern const struct limits *const limits_tables[];

#endif
