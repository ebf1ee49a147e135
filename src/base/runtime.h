/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The caller's hooks, with the defaults filled in. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "qobs/qobs.h"

/* Memory of the caller, handed out in blocks. One thread at a time. */

struct region {
    unsigned char *begin, *end; /* blocks without gaps */
};

enum { REGION_ALIGNMENT = 16 };

/* Bytes of the region that a block of that size occupies; SIZE_MAX on overflow. */
size_t qobs_region_block(size_t size);

/* `begin` is aligned. Memory smaller than the smallest block makes an empty region. */
struct region qobs_region_make(unsigned char *begin, const unsigned char *end);

/* NULL: no free block is large enough. */
void *qobs_region_allocate(struct region *region, size_t size);
void qobs_region_release(void *memory);

struct runtime {
    const qobs_allocator *allocator; /* never NULL */
    const qobs_executor *executor;   /* NULL: the calling thread */
    struct region *region;           /* for state, until it is full; NULL: there is none */
};

int qobs_runtime_resolve(struct runtime *resolved, const qobs_runtime *runtime, qobs_error *error);

/* Memory for the time of a call, and for the state of observers. Both are released in the same way. */
void *qobs_allocate(const struct runtime *runtime, size_t size);
void *qobs_allocate_state(const struct runtime *runtime, size_t size);
void qobs_release(const struct runtime *runtime, void *memory, size_t size);

/* Runs task(argument, i) for each i below count, on the executor if there is one. */
void qobs_parallel_for(const struct runtime *runtime, void (*task)(void *, size_t), void *argument, size_t count);

/* The number of tasks that run at the same time. */
size_t qobs_threads(const struct runtime *runtime);
