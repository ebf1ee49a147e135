/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "runtime.h"

#include <stdlib.h>

#include "error.h"

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

int qobs_runtime_resolve(struct runtime *resolved, const qobs_runtime *given, qobs_error *error)
{
    *resolved = (struct runtime){.allocator = &default_allocator};
    if (!given)
        return QOBS_OK;
    if (given->struct_size < sizeof *given)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "runtime: struct_size is %zu, expected %zu", given->struct_size,
                         sizeof *given);
    if (given->allocator) {
        const qobs_allocator *a = given->allocator;
        if (a->struct_size < sizeof *a || !a->allocate || !a->release)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "runtime.allocator: struct_size is %zu, expected %zu; allocate and release must be set",
                             a->struct_size, sizeof *a);
        resolved->allocator = a;
    }
    if (given->executor) {
        const qobs_executor *e = given->executor;
        if (e->struct_size < sizeof *e || !e->parallel_for || e->threads == 0)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "runtime.executor: struct_size is %zu, expected %zu; parallel_for must be set and threads above 0",
                             e->struct_size, sizeof *e);
        resolved->executor = e;
    }
    return QOBS_OK;
}

void *qobs_allocate(const struct runtime *runtime, size_t size)
{
    return runtime->allocator->allocate(runtime->allocator->context, size ? size : 1);
}

void qobs_release(const struct runtime *runtime, void *memory, size_t size)
{
    if (memory)
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
    return runtime->executor ? runtime->executor->threads : 1;
}
