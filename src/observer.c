/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The life of an observer: made, fed with batches, reset. */
#include "observer.h"

#include <string.h>

#include "dispatch.h"
#include "error.h"
#include "fpenv.h"
#include "search/observe.h"
#include "statistic/keep.h"
#include "statistic/reduce.h"
#include "statistic/update.h"

int qobs_allocate_ranges(const struct runtime *runtime, struct ranges *ranges, qobs_dtype dtype, size_t n, qobs_error *error)
{
    const size_t half = (n * qobs_dtype_size(dtype) + 63) / 64 * 64;
    ranges->size = 2 * half;
    ranges->min = qobs_allocate(runtime, ranges->size);
    if (!ranges->min) {
        ranges->size = 0;
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes of ranges", 2 * half);
    }
    ranges->max = ranges->min + half;
    return QOBS_OK;
}

void qobs_release_ranges(const struct runtime *runtime, struct ranges *ranges)
{
    qobs_release(runtime, ranges->min, ranges->size);
    *ranges = (struct ranges){0};
}

void qobs_release_kept(const struct runtime *runtime, struct kept *kept)
{
    qobs_release_ranges(runtime, &kept->state);
    qobs_release_ranges(runtime, &kept->batch);
    qobs_votes_release(runtime, &kept->votes);
}

static void release_all(qobs_observer *o)
{
    qobs_release_kept(&o->runtime, &o->kept);
    qobs_importance_release(&o->runtime, &o->importance);
    qobs_search_record_release(&o->runtime, &o->searched);
}

static struct qobs_observer empty_observer(const qobs_config *config, const struct runtime *runtime,
                                           const struct qobs_kernels *kernels)
{
    return (qobs_observer){
        .config = *config,
        .runtime = *runtime,
        .kernels = kernels,
        .layout = {.dtype = QOBS_F32, .qparams = 1, .entries = 1, .scale = qobs_convention_shape_without_data(config)},
    };
}

int qobs_observer_create(qobs_observer **result, const qobs_config *config, const qobs_runtime *given, qobs_error *error)
{
    struct runtime runtime;
    int status = qobs_config_check(config, error);
    if (status == QOBS_OK)
        status = qobs_runtime_resolve(&runtime, given, error);
    if (status != QOBS_OK)
        return status;
    qobs_observer *o = qobs_allocate(&runtime, sizeof *o);
    if (!o)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes", sizeof *o);
    *o = empty_observer(config, &runtime, qobs_kernels_active());
    *result = o;
    return qobs_succeed(error);
}

void qobs_observer_reset(qobs_observer *o)
{
    release_all(o);
    const qobs_observer old = *o;
    *o = empty_observer(&old.config, &old.runtime, old.kernels);
}

void qobs_observer_destroy(qobs_observer *o)
{
    if (!o)
        return;
    release_all(o);
    const struct runtime runtime = o->runtime;
    qobs_release(&runtime, o, sizeof *o);
}

/* ---- Batches ---------------------------------------------------------------------------------------------------------- */

static struct layout layout_of(const qobs_observer *o, const qobs_plan *plan)
{
    return (struct layout){
        .dtype = o->config.preset->family == FAMILY_TORCH ? QOBS_F32 : plan->dtype,
        .qparams = (size_t)plan->qparams,
        .entries = qobs_entries(&o->config, (size_t)plan->qparams),
        .range = plan->range,
        .scale = plan->scale,
    };
}

/* Is there nothing yet that this batch would have to go with? */
static bool begins(const qobs_observer *o, const struct layout *layout)
{
    const bool same = qobs_same_shape(&o->layout.range, &layout->range) && qobs_same_shape(&o->layout.scale, &layout->scale);
    if (!qobs_has_ranges(o))
        return true;
    return qobs_begins_anew(&o->config) && (!same || (layout->dtype != o->layout.dtype && qobs_memoryless(&o->config)));
}

static int check_same(const qobs_observer *o, const struct layout *layout, qobs_error *error)
{
    if (!qobs_same_shape(&o->layout.range, &layout->range))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "value: gives %zu qparams in %d dimensions, the batches before gave %zu in %d", layout->qparams,
                         layout->range.ndim, o->layout.qparams, o->layout.range.ndim);
    if (layout->dtype != o->layout.dtype)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: dtype is %s, the batches before were %s",
                         qobs_dtype_name(layout->dtype), qobs_dtype_name(o->layout.dtype));
    return QOBS_OK;
}

/* The whole batch's range behind those of the qparams. */
static void append_whole(const struct layout *layout, struct ranges *batch)
{
    const size_t size = qobs_dtype_size(layout->dtype);
    unsigned char *min = batch->min + layout->qparams * size, *max = batch->max + layout->qparams * size;
    memcpy(min, batch->min, size);
    memcpy(max, batch->max, size);
    for (size_t i = 1; i < layout->qparams; i++)
        qobs_update_running(layout->dtype, 1, min, max, batch->min + i * size, batch->max + i * size);
}

/* The batch's range in the layout's dtype. */
static int reduce_batch(const qobs_observer *o, const qobs_plan *plan, const struct layout *layout, const qobs_tensor *value,
                        struct ranges *batch, struct qobs_nonfinite *nonfinite, qobs_error *error)
{
    struct ranges native = {0};
    const bool convert = layout->dtype != plan->dtype;
    int status = QOBS_OK;
    if (convert)
        status = qobs_allocate_ranges(&o->runtime, &native, plan->dtype, layout->qparams, error);
    struct ranges *to = convert ? &native : batch;
    if (status == QOBS_OK)
        status = qobs_reduce_minmax(&o->runtime, o->kernels, plan, value->data, qobs_nonfinite_mode(&o->config), to->min,
                                    to->max, nonfinite, error);
    if (status == QOBS_OK && convert) {
        qobs_convert_to_f32(plan->dtype, layout->qparams, native.min, (float *)(void *)batch->min);
        qobs_convert_to_f32(plan->dtype, layout->qparams, native.max, (float *)(void *)batch->max);
    }
    if (status == QOBS_OK && layout->entries > layout->qparams)
        append_whole(layout, batch);
    qobs_release_ranges(&o->runtime, &native);
    return status;
}

static bool ignores_further(const qobs_observer *o)
{
    return o->config.preset->family == FAMILY_LLMC && o->config.base_name == BASE_WEIGHT && o->counts.batches > 0 &&
           o->config.version == VERSION_CURRENT;
}

static int take(qobs_observer *o, const qobs_plan *plan, const qobs_tensor *value, qobs_error *error)
{
    const struct layout layout = layout_of(o, plan);
    const bool first = begins(o, &layout);
    struct kept kept = first ? (struct kept){0} : o->kept;
    struct qobs_nonfinite nonfinite = {0};
    struct search_record record = {0};
    int status = first ? QOBS_OK : check_same(o, &layout, error);
    if (status == QOBS_OK)
        status = qobs_keep_reserve(o, &layout, &kept, error);
    if (status == QOBS_OK)
        status = reduce_batch(o, plan, &layout, value, &kept.batch, &nonfinite, error);
    if (status == QOBS_OK && qobs_searches(&o->config))
        status = qobs_search_observed(o, plan, &layout, value, first, &kept, &record, error);
    if (status == QOBS_OK && qobs_weighs_columns(&o->config) && plan->value.ndim > 0)
        status = qobs_importance_reserve(&o->runtime, &o->importance, plan->value.shape[plan->value.ndim - 1], error);
    if (first)
        qobs_release_kept(&o->runtime, status == QOBS_OK ? &o->kept : &kept);
    if (!first || status == QOBS_OK)
        o->kept = kept;
    qobs_search_record_release(&o->runtime, status == QOBS_OK ? &o->searched : &record);
    if (status != QOBS_OK)
        return status;
    o->searched = record;
    o->layout = layout;
    o->fused = false;
    qobs_keep(o, first);
    o->counts.batches++;
    o->counts.elements += (uint64_t)plan->value.elements;
    o->counts.nan += nonfinite.nan;
    o->counts.inf += nonfinite.inf;
    return QOBS_OK;
}

int qobs_observer_observe(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx, qobs_error *error)
{
    if (!o)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .allocator = o->runtime.allocator};
    qobs_plan *plan;
    struct view view;
    int status = qobs_view_of_tensor(&view, value, "value", error);
    if (status != QOBS_OK)
        return status;
    if (view.elements == 0 || ignores_further(o))
        return qobs_succeed(error);
    if (qobs_keeps(&o->config) == KEEPS_NOTHING) {
        o->counts.batches++;
        o->counts.elements += (uint64_t)view.elements;
        return qobs_succeed(error);
    }
    status = qobs_plan_create(&plan, &o->config, value, g_idx, &runtime, error);
    if (status != QOBS_OK)
        return status;
    const fp_mode mode = fp_enter();
    status = take(o, plan, value, error);
    fp_leave(mode);
    qobs_plan_destroy(plan);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

int qobs_observer_observe_importance(qobs_observer *o, const qobs_tensor *activations, qobs_error *error)
{
    struct view view;
    if (!o)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    if (!qobs_weighs_columns(&o->config))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: %s does not weigh columns", o->config.preset->name);
    int status = qobs_view_of_tensor(&view, activations, "activations", error);
    if (status != QOBS_OK)
        return status;
    const fp_mode mode = fp_enter();
    status = qobs_importance_add(&o->runtime, o->kernels, &o->importance, &view, error);
    fp_leave(mode);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

int qobs_observer_counts(const qobs_observer *o, qobs_counts *counts, qobs_error *error)
{
    if (!counts || counts->struct_size < sizeof *counts)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "counts: struct_size is %zu, expected %zu",
                         counts ? counts->struct_size : 0, sizeof *counts);
    const size_t size = counts->struct_size;
    *counts = o->counts;
    counts->struct_size = size;
    return qobs_succeed(error);
}
