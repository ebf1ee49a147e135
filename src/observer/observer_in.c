/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observers in memory of the caller: the observer, its region, and the state in that. */
#include "base/error.h"
#include "observer/searches.h"
#include "observer/observer.h"
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

/* Allocates and releases one state: the accumulated one, and then that of a batch while the first is there. */
static int reserve_state(const struct runtime *runtime, const struct stages *stages, const struct layout *layout,
                         size_t modes, qobs_error *error)
{
    const struct histogram_rule *rule = &stages->reduction.histogram;
    struct state state = {0};
    int status = qobs_allocate_ranges(runtime, &state.ranges, layout->dtype, layout->qparams, error);
    if (status == QOBS_OK && stages->accumulator.ops->counts_mode)
        status = qobs_mode_reserve(runtime, &state.mode, layout->qparams, modes, error);
    if (status == QOBS_OK && rule->ops)
        status =
            qobs_histogram_allocate(runtime, rule->ops, &state.histogram, layout->qparams, rule->params.bins, error);
    if (status == QOBS_OK && qobs_range_has_record(stages->range.ops))
        status = qobs_search_record_reserve(runtime, &state.record, layout->qparams, error);
    if (status == QOBS_OK && stages->range.ops->optimal) /* a row has at least one qparam */
        status = qobs_optimal_result_reserve(runtime, &state.optimal, layout->qparams, layout->qparams, error);
    qobs_state_release(runtime, &state);
    return status;
}

/* Allocates and releases what exists once, beside two states. */
static int reserve_inputs(const struct runtime *runtime, const struct stages *stages, const struct layout *layout,
                          int64_t columns, qobs_error *error)
{
    const struct range_ops *range = stages->range.ops;
    int status = QOBS_OK;
    if (qobs_range_has_sums(range)) {
        struct state state = {0};
        status =
            qobs_error_sums_reserve(runtime, &state.sums, layout->qparams * qobs_range_steps(&stages->range), error);
        qobs_state_release(runtime, &state);
    }
    if (status == QOBS_OK && stages->range.params.importance) {
        struct importance importance = {0};
        status = qobs_importance_reserve(runtime, &importance, columns, error);
        qobs_importance_release(runtime, &importance);
    }
    if (status == QOBS_OK && qobs_needs_gram(stages)) {
        struct gram gram = qobs_gram_for(stages, columns);
        status = qobs_gram_reserve(runtime, &gram, error);
        qobs_gram_release(runtime, &gram);
    }
    for (int i = 0; qobs_range_has_reference(range) && i < 2;
         i++) { /* a reference replaces another that is still there */
        qobs_release(runtime, qobs_allocate(runtime, layout->qparams * sizeof(float)), layout->qparams * sizeof(float));
        qobs_release(runtime, qobs_allocate(runtime, (size_t)columns * sizeof(float)), (size_t)columns * sizeof(float));
    }
    return status;
}

static int reserve_all(const struct runtime *runtime, const struct stages *stages, const qobs_plan *plan,
                       qobs_error *error)
{
    enum { MODES = 3 }; /* different scales after the first */
    const struct layout layout = qobs_layout_of(stages, plan);
    const int64_t columns = plan->value.ndim > 0 ? plan->value.shape[plan->value.ndim - 1] : 1;
    int status = reserve_inputs(runtime, stages, &layout, columns, error);
    if (status == QOBS_OK)
        status = reserve_state(runtime, stages, &layout, 1, error);
    return status == QOBS_OK ? reserve_state(runtime, stages, &layout, MODES, error) : status;
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
        status = reserve_all(&counting, &stages, plan, error);
        qobs_plan_destroy(plan);
    }
    if (status != QOBS_OK)
        return status;
    *size = HEADER + REGION_ALIGNMENT - 1 + counter.bytes;
    return qobs_succeed(error);
}
