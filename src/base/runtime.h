/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The caller's hooks, with the defaults filled in. */
#pragma once

#include "base/region.h"
#include "qobs/qobs.h"

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
