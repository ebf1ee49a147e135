/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "base/runtime.h"

#include <stdint.h>
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
    const struct region *region = runtime->region;
    const uintptr_t place = (uintptr_t)memory;
    if (region && place >= (uintptr_t)region->begin && place < (uintptr_t)region->end)
        qobs_region_release(memory);
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

/* ---- Regions ----------------------------------------------------------------------------------------------------- */

/* The header of a block, before its memory. Blocks lie one behind the other. There are few of them, so a search visits
 * all. */
struct block {
    _Alignas(REGION_ALIGNMENT) size_t size; /* header included */
    size_t used;
};

size_t qobs_region_block(size_t size)
{
    if (size > SIZE_MAX / 2)
        return SIZE_MAX;
    return sizeof(struct block) + (size + REGION_ALIGNMENT - 1) / REGION_ALIGNMENT * REGION_ALIGNMENT;
}

static struct block *at(unsigned char *place) { return (struct block *)(void *)place; }

struct region qobs_region_make(unsigned char *begin, const unsigned char *end)
{
    struct region region = {begin, begin};
    const size_t size = (size_t)(end - begin) / REGION_ALIGNMENT * REGION_ALIGNMENT;
    if (size < qobs_region_block(1))
        return region;
    region.end = begin + size;
    *at(begin) = (struct block){.size = size};
    return region;
}

/* Returns the smallest block that fits. Arrays that are replaced by arrays of the same size again and again then reuse
 * one place. */
void *qobs_region_allocate(struct region *region, size_t size)
{
    const size_t wanted = qobs_region_block(size);
    struct block *best = NULL;
    for (unsigned char *place = region->begin; place < region->end; place += at(place)->size) {
        struct block *b = at(place);
        while (!b->used && place + b->size < region->end && !at(place + b->size)->used)
            b->size += at(place + b->size)->size; /* free neighbours become one */
        if (!b->used && b->size >= wanted && (!best || b->size < best->size))
            best = b;
    }
    if (!best)
        return NULL;
    if (best->size - wanted >= qobs_region_block(1)) {
        *at((unsigned char *)best + wanted) = (struct block){.size = best->size - wanted};
        best->size = wanted;
    }
    best->used = 1;
    return best + 1;
}

void qobs_region_release(void *memory) { at((unsigned char *)memory - sizeof(struct block))->used = 0; }
