/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/** @file
 * A qobs executor over a pthreadpool (https://github.com/Maratyszcza/pthreadpool). Header only; the program that
 * includes it links pthreadpool.
 *
 *     pthreadpool_t pool = pthreadpool_create(0);
 *     qobs_executor executor = qobs_pthreadpool_executor(pool);
 *
 * A pool runs one loop at a time, so observers with the same pool must not observe at the same time. */
#ifndef QOBS_PTHREADPOOL_H
#define QOBS_PTHREADPOOL_H

#include <pthreadpool.h>

#include "qobs.h"

/** @cond internal */
struct qobs_pthreadpool_loop {
    void (*task)(void *, size_t);
    void *argument;
};

static inline void qobs_pthreadpool_task(void *context, size_t index)
{
    const struct qobs_pthreadpool_loop *loop = (const struct qobs_pthreadpool_loop *)context;
    loop->task(loop->argument, index);
}

static inline void qobs_pthreadpool_parallel_for(void *context, void (*task)(void *, size_t), void *argument,
                                                 size_t count)
{
    struct qobs_pthreadpool_loop loop = {task, argument};
    /* Workers sleep after a loop. Else each of them spins for a million pauses and takes a processor from others. */
    pthreadpool_parallelize_1d((pthreadpool_t)context, qobs_pthreadpool_task, &loop, count,
                               PTHREADPOOL_FLAG_YIELD_WORKERS);
}

/** @endcond */

/** Returns an executor over `pool`. The pool must outlive every object created with the executor. */
static inline qobs_executor qobs_pthreadpool_executor(pthreadpool_t pool)
{
    qobs_executor executor;
    executor.struct_size = sizeof executor;
    executor.threads = pthreadpool_get_threads_count(pool);
    executor.parallel_for = qobs_pthreadpool_parallel_for;
    executor.context = pool;
    return executor;
}

#endif
