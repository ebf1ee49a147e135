/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* An executor's parallel_for on threads of its own, last task first. */
#ifndef QOBS_TEST_THREADS_H
#define QOBS_TEST_THREADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/sanitized.h"

struct thread_loop {
    void (*task)(void *, size_t);
    void *argument;
    size_t count;
    atomic_size_t taken;
};

static atomic_size_t loops; /* how often work was cut */

static void *take_tasks(void *argument)
{
    struct thread_loop *loop = argument;
    for (size_t i; (i = atomic_fetch_add(&loop->taken, 1)) < loop->count;)
        loop->task(loop->argument, loop->count - 1 - i);
    return NULL;
}

/* The stack that musl gives a thread must suffice. A larger frame reaches no memory behind it. */
enum { STACK_BYTES = 128 << 10, GUARD_BYTES = 1 << 20 };

/* context: the number of threads, a size_t, at most 17. */
static void parallel_for(void *context, void (*task)(void *, size_t), void *argument, size_t count)
{
    pthread_t threads[16];
    struct thread_loop loop = {.task = task, .argument = argument, .count = count};
    const size_t n = *(const size_t *)context;
    size_t started = 0;
    pthread_attr_t attributes;
    atomic_fetch_add(&loops, 1);
    pthread_attr_init(&attributes);
#ifndef SANITIZED
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
#ifndef _WIN32
    pthread_attr_setguardsize(&attributes, GUARD_BYTES);
#endif
#endif
    while (started < n - 1 && pthread_create(&threads[started], &attributes, take_tasks, &loop) == 0)
        started++;
    pthread_attr_destroy(&attributes);
    take_tasks(&loop);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

#endif
