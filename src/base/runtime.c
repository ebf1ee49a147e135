/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "base/runtime.h"

#include <stdlib.h>

#include "base/struct_size.h"

enum { MOST_THREADS = 1 << 16 }; /* more are used as so many, so that counts of parts do not overflow */

static void *default_allocate(void *context, size_t size)
{
    (void)context;
    return malloc(size);
}

static void default_release(void *context, void *memory, size_t size)
{
    (void)context;
    (void)size;
    free(memory);
}

static const qobs_allocator default_allocator = {
    .struct_size = sizeof default_allocator,
    .allocate = default_allocate,
    .release = default_release,
};

static int check_allocator(const qobs_allocator *a, qobs_error *error)
{
    const int status =
        struct_size_check("runtime.allocator", a, SIZE_THROUGH(qobs_allocator, context), sizeof *a, error);
    if (status != QOBS_OK || (a->allocate && a->release))
        return status;
    return qobs_invalid(error, "runtime.allocator: %s is NULL", a->allocate ? "release" : "allocate");
}

static int check_executor(const qobs_executor *e, qobs_error *error)
{
    const int status = struct_size_check("runtime.executor", e, SIZE_THROUGH(qobs_executor, context), sizeof *e, error);
    if (status != QOBS_OK || (e->parallel_for && e->threads > 0))
        return status;
    return qobs_invalid(error, "runtime.executor: %s",
                        e->parallel_for ? "threads is 0, allowed are 1 and more" : "parallel_for is NULL");
}

int qobs_runtime_resolve(struct runtime *resolved, const qobs_runtime *runtime, qobs_error *error)
{
    *resolved = (struct runtime){.allocator = &default_allocator};
    if (!runtime)
        return QOBS_OK;
    RETURN_IF_FAILED(
        struct_size_check("runtime", runtime, SIZE_THROUGH(qobs_runtime, executor), sizeof *runtime, error));
    if (runtime->allocator)
        RETURN_IF_FAILED(check_allocator(runtime->allocator, error));
    if (runtime->executor)
        RETURN_IF_FAILED(check_executor(runtime->executor, error));
    if (runtime->allocator)
        resolved->allocator = runtime->allocator;
    resolved->executor = runtime->executor;
    return QOBS_OK;
}

void *qobs_allocate(const struct runtime *runtime, size_t size)
{
    return runtime->allocator->allocate(runtime->allocator->context, size ? size : 1);
}

void *qobs_allocate_state(const struct runtime *runtime, size_t size)
{
    void *memory = runtime->region ? qobs_region_allocate(runtime->region, size) : NULL;
    return memory ? memory : qobs_allocate(runtime, size);
}

void qobs_release(const struct runtime *runtime, void *memory, size_t size)
{
    if (memory && runtime->region && qobs_region_holds(runtime->region, memory))
        qobs_region_release(runtime->region, memory);
    else if (memory)
        runtime->allocator->release(runtime->allocator->context, memory, size ? size : 1);
}

void qobs_parallel_for(const struct runtime *runtime, void (*task)(void *, size_t), void *argument, size_t count)
{
    if (runtime->executor && count > 1) {
        runtime->executor->parallel_for(runtime->executor->context, task, argument, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        task(argument, i);
}

size_t qobs_threads(const struct runtime *runtime)
{
    const size_t threads = runtime->executor ? runtime->executor->threads : 1;
    return threads < MOST_THREADS ? threads : MOST_THREADS;
}
