/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The work that qobs bench measures: calls of the public library on a tensor that does not fit the caches of a core,
 * and loops that do nothing but what bounds them. */
#ifndef QOBS_TOOLS_BENCH_WORKS_H
#define QOBS_TOOLS_BENCH_WORKS_H

#include <stdbool.h>

#include "qobs/qobs.h"

/* The tensor as bf16 of rows x COLUMNS, and the same bytes as f32 of rows x COLUMNS / 2; all numbers are finite. */
struct bench_data {
    int64_t rows;
    uint16_t *numbers;
    qobs_tensor bf16, f32, few; /* few: the first rows of bf16, for searches */
    int64_t bf16_shape[2], f32_shape[2], few_shape[2];
    qobs_config *group, *search; /* int4, groups of 128: ranges, and the search of the smallest error */
    void *min, *max, *scale;     /* one element for each group */
    size_t groups;
    unsigned char *codes;
    uint64_t *bins, limit_sum;
    uint16_t *bin_of; /* a bin for each of some elements */
    uint32_t *counters;
};

enum { BENCH_BINS = 2048 };

/* Allocates and fills the data. Returns an exit code. bench_data_free is needed in any case. */
int bench_data_make(struct bench_data *data, size_t megabytes);
void bench_data_free(struct bench_data *data);

/* Bytes of the whole tensor. */
size_t bench_bytes(const struct bench_data *data);

/* The faster one of BENCH_READ and BENCH_READ_BY_SEARCH is the read loop. */
enum bench_limit { BENCH_NO_LIMIT, BENCH_READ, BENCH_COUNT, BENCH_READ_BY_SEARCH, BENCH_LIMITS };

struct bench_work {
    const char *name, *key; /* for people; in JSON */
    /* Runs once. Returns a qobs_status. runtime: NULL for loops. */
    int (*run)(struct bench_data *data, const qobs_runtime *runtime, qobs_error *error);
    bool few;               /* on data->few, not on the whole tensor */
    enum bench_limit limit; /* the loop that bounds it */
    size_t element_size;    /* bytes of an element */
};

/* Returns the number of elements that a run reads. */
double bench_elements(const struct bench_work *work, const struct bench_data *data);

/* Returns a work by index; its run is NULL after the last one. */
const struct bench_work *bench_work_at(size_t index);

/* Returns the loop of a limit: what it is called and a work for it. */
const struct bench_work *bench_limit_loop(enum bench_limit limit);

#endif
