/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Loops that do nothing but what a core can do at best. */
#ifndef QOBS_BENCH_LIMITS_H
#define QOBS_BENCH_LIMITS_H

#include <stddef.h>
#include <stdint.h>

enum { LIMITS_STEP = 1024 };
struct limits_work {
    const void *data; /* 8-byte aligned; the whole steps of its bytes are read, by the widest loads */
    size_t bytes;
    void *out;         /* 64-byte aligned, written beside the reads */
    size_t written;    /* bytes of out for each step: a multiple of 64 */
    size_t operations; /* for each step, with those of the loads */
    size_t ahead;      /* bytes by which lines are asked for before they are read or written; 0: they are not */
};

struct limits {
    const char *isa;
    /* All of `data`, 8-byte aligned, or-ed together, by the widest loads: the read loop. */
    uint64_t (*read)(const void *data, size_t bytes);
    /* counters[index[i]]++ for n indices, one after the other; index stays as it is in the first-level cache. */
    void (*count)(uint32_t *counters, const uint32_t *index, size_t n);
    /* At least n multiply-adds of floats, as many in a vector as it holds, in enough chains to keep all units busy; *done: how many. */
    float (*multiply_add)(size_t n, size_t *done);
    /* The limits of kernels: they move the same bytes and do as many vector operations, of which few wait for another.
     * A load takes a minimum and a maximum of integers of 16 bits, or one bitwise or. All others are half multiply-adds
     * of floats, half additions and bitwise operations of integers. */
    uint64_t (*extrema)(const struct limits_work *work);
    uint64_t (*arithmetic)(const struct limits_work *work);
};

/* One per instruction set of the library, in the same order; the caller looks first whether it may run. Ends with NULL. */
extern const struct limits *const limits_tables[];

#endif
