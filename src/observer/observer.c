/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The life of an observer. */
#include "observer/observer.h"

#include "base/struct_size.h"
#include "kernels/dispatch.h"
#include "plan/make_plan.h"

/* Forgets everything but what the observer was created with. */
static void clear(qobs_observer *o)
{
    qobs_parts_clear(o);
    o->state.layout =
        (struct layout){.dtype = QOBS_F32, .qparams = 1, .scale = o->stages.formula.params.shape_without_data};
}

void qobs_observer_init(qobs_observer *o, const qobs_config *config, const struct runtime *runtime)
{
    o->config = *config;
    o->runtime = *runtime;
    o->kernels = qobs_kernels_active();
    qobs_stages_of(config, &o->stages);
    o->parts = qobs_parts_of(&o->stages);
    clear(o);
}

int qobs_observer_create(qobs_observer **result, const qobs_config *config, const qobs_runtime *given,
                         qobs_error *error)
{
    RETURN_IF_LEFT_OUT(observers, error);
    struct runtime runtime;
    RETURN_IF_FAILED(qobs_require(result, "observer", error));
    RETURN_IF_FAILED(qobs_config_check(config, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, given, error));
    qobs_observer *o = qobs_allocate(&runtime, sizeof *o);
    RETURN_IF_FAILED(qobs_require_memory(o, "observer", sizeof *o, error));
    qobs_observer_init(o, config, &runtime);
    *result = o;
    return qobs_succeed(error);
}

int qobs_observer_open(qobs_observer **observer, const char *text, const qobs_runtime *runtime, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require(observer, "observer", error));
    qobs_config *config;
    RETURN_IF_FAILED(qobs_config_parse(&config, text, runtime, error));
    const int status = qobs_observer_create(observer, config, runtime, error);
    qobs_config_destroy(config);
    return status;
}

const qobs_config *qobs_observer_config(const qobs_observer *o) { return o ? &o->config : NULL; }

void qobs_observer_reset(qobs_observer *o)
{
    if (!o)
        return;
    qobs_parts_release(o);
    clear(o);
}

void qobs_observer_reset_batches(qobs_observer *o)
{
    if (!o)
        return;
    const struct importance importance = o->importance;
    const struct gram gram = o->gram;
    struct search_reference reference = o->reference;
    reference.dtype = reference.amax ? reference.dtype : 0; /* else it is that of the first batch */
    qobs_state_release(&o->runtime, &o->state);
    clear(o);
    o->importance = importance;
    o->gram = gram;
    o->reference = reference;
}

void qobs_observer_destroy(qobs_observer *o)
{
    if (!o)
        return;
    qobs_parts_release(o);
    const struct runtime runtime = o->runtime;
    if (!runtime.region) /* else it lies in the caller's memory */
        qobs_release(&runtime, o, sizeof *o);
}

int qobs_observer_counts(const qobs_observer *o, qobs_counts *counts, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    RETURN_IF_FAILED(counts_check("counts", counts, error));
    counts_copy(&o->counts, counts);
    return qobs_succeed(error);
}

struct layout qobs_layout_of(const struct stages *stages, const qobs_plan *plan)
{
    return (struct layout){
        .dtype = qobs_reduced_dtype(&stages->reduction, plan->dtype),
        .qparams = (size_t)plan->qparams,
        .range = plan->range,
        .scale = plan->scale,
        .keying = plan->keying,
    };
}

struct range_view qobs_view_ranges(const qobs_observer *o)
{
    const struct state *s = &o->state;
    if (qobs_state_is_empty(s))
        return qobs_no_ranges();
    return (struct range_view){
        .dtype = s->layout.dtype,
        .n = s->layout.qparams,
        .rank = s->layout.range.ndim == 0 ? RANK_SCALAR : RANK_TENSOR,
        .min = s->ranges.min,
        .max = s->ranges.max,
    };
}

struct range_view qobs_view_global(const qobs_observer *o)
{
    const struct global_range *g = &o->global_range;
    return o->stages.traits.global == GLOBAL_FROM_TENSORS
               ? (struct range_view){.dtype = g->dtype, .n = 1, .min = g->min, .max = g->max}
               : qobs_view_ranges(o);
}

void qobs_accumulate_global(const struct accumulator *a, struct global_range *global, const struct global_range *batch)
{
    const bool first = global->dtype == 0 || a->replaces;
    if (first)
        *global = *batch;
    batch = first ? global : batch;
    const struct range_update update = {.dtype = global->dtype,
                                        .n = 1,
                                        .min = global->min,
                                        .max = global->max,
                                        .batch_min = batch->min,
                                        .batch_max = batch->max,
                                        .first = first};
    qobs_accumulate(a, &update);
}

/* ---- In memory of the caller: the observer, its region, and the state in that ------------------------------------ */

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
    RETURN_IF_FAILED(qobs_require(size, "size", error));
    RETURN_IF_FAILED(qobs_config_check(config, error));
    struct counter counter = {.runtime = &config->runtime};
    struct stages stages;
    qobs_stages_of(config, &stages);
    if (value && stages.reduction.ops->measure) {
        const qobs_allocator allocator = {sizeof allocator, count_and_allocate, release_counted, &counter};
        const struct runtime counting = {.allocator = &allocator};
        qobs_plan *plan;
        RETURN_IF_FAILED(qobs_plan_new(&plan, &stages.granularity, value, NULL, &config->runtime, error));
        const struct layout layout = qobs_layout_of(&stages, plan);
        const struct view *v = &plan->value;
        const struct part_size size_of = {
            .stages = &stages, .layout = &layout, .columns = v->ndim > 0 ? v->shape[v->ndim - 1] : 1};
        const int status = qobs_parts_reserve(&counting, &size_of, error);
        qobs_plan_destroy(plan);
        RETURN_IF_FAILED(status);
    }
    *size = HEADER + REGION_ALIGNMENT - 1 + counter.bytes;
    return qobs_succeed(error);
}

/* ---- State ------------------------------------------------------------------------------------------------------- */

int qobs_allocate_ranges(const struct runtime *runtime, struct ranges *ranges, qobs_dtype dtype, size_t n,
                         qobs_error *error)
{
    const size_t half = (n * qobs_dtype_size(dtype) + 63) / 64 * 64;
    ranges->min = qobs_allocate_state(runtime, 2 * half);
    RETURN_IF_FAILED(qobs_require_memory(ranges->min, "observer", 2 * half, error));
    ranges->max = ranges->min + half;
    ranges->size = 2 * half;
    return QOBS_OK;
}

void qobs_release_ranges(const struct runtime *runtime, struct ranges *ranges)
{
    qobs_release(runtime, ranges->min, ranges->size);
    *ranges = (struct ranges){0};
}

int qobs_error_sums_reserve(const struct runtime *runtime, struct error_sums *sums, size_t count, qobs_error *error)
{
    double *sum = qobs_allocate_state(runtime, count * sizeof *sum);
    RETURN_IF_FAILED(qobs_require_memory(sum, "observer", count * sizeof *sum, error));
    memset(sum, 0, count * sizeof *sum);
    *sums = (struct error_sums){.sum = sum, .count = count};
    return QOBS_OK;
}
