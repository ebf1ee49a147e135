/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/** @file
 * A qobs executor over OpenMP. Header only; compile the program that includes it with OpenMP (-fopenmp).
 *
 *     qobs_executor executor = qobs_openmp_executor(0);
 *
 * Without OpenMP the executor has one thread. Several observers may observe at the same time; each call has its own
 * team of threads. Inside a parallel region OpenMP gives a team of one thread, unless nested parallelism
 * is on. */
#ifndef QOBS_OPENMP_H
#define QOBS_OPENMP_H

#ifdef _OPENMP
#include <omp.h>
#endif

#include "qobs.h"

/** @cond internal */
static inline void qobs_openmp_parallel_for(void *context, void (*task)(void *, size_t), void *argument, size_t count)
{
#ifdef _OPENMP
    const int threads = (int)(intptr_t)context;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
#else
    (void)context;
#endif
    for (size_t i = 0; i < count; i++)
        task(argument, i);
}

/** @endcond */

/** Returns an executor of at most `threads` threads; 0 or less means the number OpenMP would use. The executor owns no
 * memory. */
static inline qobs_executor qobs_openmp_executor(int threads)
{
    qobs_executor executor;
#ifdef _OPENMP
    const int most = threads > 0 ? threads : omp_get_max_threads();
#else
    const int most = 1;
    (void)threads;
#endif
    executor.struct_size = sizeof executor;
    executor.threads = (size_t)most;
    executor.parallel_for = qobs_openmp_parallel_for;
    executor.context = (void *)(intptr_t)most;
    return executor;
}

#endif
