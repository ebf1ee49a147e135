/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observers in memory of the caller: the observer, its region, and the state in that. */
#include "base/build.h"
#include "base/error.h"
#include "observer/state_parts.h"
#include "plan/make_plan.h"
#include "qobs/plan.h"

struct in_place {
    qobs_observer observer;
    struct region region;
};

enum { HEADER = (sizeof(struct in_place) + REGION_ALIGNMENT - 1) / REGION_ALIGNMENT * REGION_ALIGNMENT };

int qobs_observer_create_in(qobs_observer **result, void *memory, size_t size, const qobs_config *config,
                            const qobs_runtime *given, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(observers, error);
    struct runtime runtime;
    const size_t skipped = (REGION_ALIGNMENT - (uintptr_t)memory % REGION_ALIGNMENT) % REGION_ALIGNMENT;
    if (!result || !memory)
        return qobs_invalid(error, "%s: is NULL", result ? "memory" : "observer");
    if (size > PTRDIFF_MAX)
        return qobs_invalid(error, "size: is %zu bytes, at most %td are allowed", size, PTRDIFF_MAX);
    if (size < skipped + HEADER)
        return qobs_invalid(error, "size: is %zu bytes, an observer needs %d", size, HEADER + REGION_ALIGNMENT - 1);
    RETURN_IF_FAILED(qobs_config_check(config, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, given, error));
    struct in_place *place = (struct in_place *)(void *)((unsigned char *)memory + skipped);
    place->region = qobs_region_make((unsigned char *)place + HEADER, (unsigned char *)memory + size);
    runtime.region = &place->region;
    qobs_observer_init(&place->observer, config, &runtime);
    *result = &place->observer;
    return qobs_succeed(error);
}

/* ---- Size -------------------------------------------------------------------------------------------------------- */

/* Counts the bytes that blocks would take in a region, and allocates them from the runtime. */
struct counter {
    const struct runtime *runtime;
    size_t bytes;
};

static void *count_and_allocate(void *context, size_t size)
{
    struct counter *counter = context;
    counter->bytes += qobs_region_block(size);
    return qobs_allocate(counter->runtime, size);
}

static void release_counted(void *context, void *memory, size_t size)
{
    qobs_release(((struct counter *)context)->runtime, memory, size);
}

int qobs_observer_size(const qobs_config *config, const qobs_tensor *value, size_t *size, qobs_error *error)
{
    if (!size)
        return qobs_invalid(error, "size: is NULL");
    int status = qobs_config_check(config, error);
    if (status != QOBS_OK)
        return status;
    struct counter counter = {.runtime = &config->runtime};
    struct stages stages;
    qobs_stages_of(config, &stages);
    if (value && stages.reduction.ops->measure) {
        const qobs_allocator allocator = {sizeof allocator, count_and_allocate, release_counted, &counter};
        const struct runtime counting = {.allocator = &allocator};
        qobs_plan *plan;
        status = qobs_plan_new(&plan, &stages.granularity, value, NULL, &config->runtime, error);
        if (status != QOBS_OK)
            return status;
        const struct layout layout = qobs_layout_of(&stages, plan);
        const struct view *v = &plan->value;
        const struct part_size size_of = {
            .stages = &stages, .layout = &layout, .columns = v->ndim > 0 ? v->shape[v->ndim - 1] : 1};
        status = qobs_parts_reserve(&counting, &size_of, error);
        qobs_plan_destroy(plan);
    }
    if (status != QOBS_OK)
        return status;
    *size = HEADER + REGION_ALIGNMENT - 1 + counter.bytes;
    return qobs_succeed(error);
}
