/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Batches: observing them, and the steps of that one by one, as upstream's functions take them. */
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "observer/observer.h"
#include "observer/post_search.h"
#include "observer/observe_search.h"
#include "measure/accumulators.h"
#include "measure/counting.h"
#include "measure/reduce.h"
#include "measure/tokens.h"
#include "measure/accumulate.h"

/* ---- What a batch has to go with ---------------------------------------------------------------------------------------- */

static qobs_dtype dtype_of_ranges(const qobs_config *config, qobs_dtype value)
{
    const enum family family = config->preset->family;
    struct histogram_rule histogram;
    qobs_resolve_histogram(config, &histogram);
    const bool f32 = family == FAMILY_TORCH || histogram.ops || (family == FAMILY_MODELOPT && qobs_searches_kept(config));
    return f32 ? QOBS_F32 : value;
}

struct layout qobs_layout_of(const qobs_config *config, const qobs_plan *plan)
{
    return (struct layout){
        .dtype = dtype_of_ranges(config, plan->dtype),
        .qparams = (size_t)plan->qparams,
        .range = plan->range,
        .scale = plan->scale,
        .keying = plan->keying,
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

static int check_dtype(const qobs_observer *o, qobs_dtype dtype, bool first, qobs_error *error)
{
    const qobs_dtype before = !first ? o->layout.dtype : qobs_memoryless(&o->config) ? 0 : o->whole.dtype;
    if (before == 0 || dtype == before)
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: dtype is %s, the batches before were %s",
                     qobs_dtype_name(dtype), qobs_dtype_name(before));
}

static int check_same(const qobs_observer *o, const struct layout *layout, qobs_error *error)
{
    if (qobs_same_shape(&o->layout.range, &layout->range) && o->layout.keying == layout->keying)
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                     "value: gives %zu qparams in %d dimensions, the batches before gave %zu in %d", layout->qparams,
                     layout->range.ndim, o->layout.qparams, o->layout.range.ndim);
}

static bool ignores_further(const qobs_observer *o)
{
    return o->config.preset->family == FAMILY_LLMC && o->config.base_name == BASE_WEIGHT && o->counts.batches > 0 &&
           o->config.version == VERSION_CURRENT;
}

/* ---- Taking a batch ------------------------------------------------------------------------------------------------------- */

/* The batch's range in the layout's dtype, and its histogram into that of all batches. */
static int reduce_batch(const qobs_observer *o, const qobs_plan *plan, const struct layout *layout, const qobs_tensor *value,
                        struct kept *kept, struct qobs_nonfinite *nonfinite, qobs_error *error)
{
    const struct histogram_rule *rule = &o->stages.histogram;
    struct ranges native = {0}, *batch = &kept->batch;
    if (rule->ops) {
        const struct batch elements = {&o->runtime, o->kernels, plan, value->data};
        return rule->ops->accept(rule, &elements, &kept->histogram, (float *)(void *)batch->min, (float *)(void *)batch->max,
                                 nonfinite, error);
    }
    const bool convert = layout->dtype != plan->dtype;
    int status = QOBS_OK;
    if (convert)
        status = qobs_allocate_ranges(&o->runtime, &native, plan->dtype, layout->qparams, error);
    struct ranges *to = convert ? &native : batch;
    if (status == QOBS_OK)
        status = (qobs_takes_absmax(&o->config) ? qobs_reduce_absmax : qobs_reduce_minmax)(
            &o->runtime, o->kernels, plan, value->data, qobs_nonfinite_mode(&o->config), to->min, to->max, nonfinite, error);
    if (status == QOBS_OK && convert) {
        qobs_convert_to_f32(plan->dtype, layout->qparams, native.min, (float *)(void *)batch->min);
        qobs_convert_to_f32(plan->dtype, layout->qparams, native.max, (float *)(void *)batch->max);
    }
    qobs_release_ranges(&o->runtime, &native);
    return status;
}

/* One range for all of those. */
static struct whole whole_of(const struct layout *layout, const struct ranges *batch)
{
    const size_t size = qobs_dtype_size(layout->dtype);
    struct whole whole = {.dtype = layout->dtype};
    memcpy(whole.min, batch->min, size);
    memcpy(whole.max, batch->max, size);
    for (size_t i = 1; i < layout->qparams; i++)
        qobs_update_running(layout->dtype, 1, whole.min, whole.max, batch->min + i * size, batch->max + i * size);
    return whole;
}

static void count_tokens(qobs_observer *o, const struct view *value)
{
    o->counts.tokens += qobs_tokens(value);
    if (o->config.preset->family == FAMILY_QUARK)
        o->counts.nonzero_tokens += qobs_nonzero_tokens(value);
}

/* What the caller wants to read afterwards; sizes that do not fit are found before anything changes. */
struct reading {
    void *min, *max;
    void *scale, *zero_point;
    size_t range_size, scale_size, zero_point_size;
    bool ranges, qparams;
};

static int check_reading(const qobs_observer *o, const struct layout *layout, bool observed, const struct reading *r,
                         qobs_error *error)
{
    if (r && r->ranges && r->range_size != layout->qparams * qobs_dtype_size(layout->dtype))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "size: is %zu bytes for min and for max, expected %zu",
                         r->range_size, layout->qparams * qobs_dtype_size(layout->dtype));
    if (r && r->qparams)
        return qobs_check_qparam_sizes(o, layout, observed, r->scale ? &r->scale_size : NULL,
                                       r->zero_point ? &r->zero_point_size : NULL, error);
    return QOBS_OK;
}

static int read_all(const qobs_observer *o, const struct reading *r, qobs_error *error)
{
    if (r && r->ranges) {
        memcpy(r->min, o->kept.state.min, r->range_size);
        memcpy(r->max, o->kept.state.max, r->range_size);
    }
    if (r && r->qparams)
        return qobs_observer_qparams(o, r->scale, r->scale_size, r->zero_point, r->zero_point_size, error);
    return qobs_succeed(error);
}

/* A histogram leaves out what is not finite: of such a batch nothing is left. */
static bool saw_nothing(const struct layout *layout, const struct kept *kept)
{
    const float *min = (const float *)(const void *)kept->batch.min, *max = (const float *)(const void *)kept->batch.max;
    bool nothing = kept->histogram.bins > 0;
    for (size_t q = 0; nothing && q < layout->qparams; q++)
        nothing = min[q] > max[q];
    return nothing;
}

/* `all`: everything upstream's forward does, not only what get_qparams does. */
static int take(qobs_observer *o, const qobs_plan *plan, const qobs_tensor *value, bool all, const struct reading *reading,
                qobs_error *error)
{
    const struct layout layout = qobs_layout_of(&o->config, plan);
    const bool first = begins(o, &layout), has_whole = all && qobs_has_whole(&o->config);
    struct kept kept = {0};
    struct qobs_nonfinite nonfinite = {0};
    struct search_record record = {0};
    struct search_workspace workspace = {0};
    struct whole whole = {0};
    if (!first)
        kept = o->kept;
    int status = first ? QOBS_OK : check_same(o, &layout, error);
    if (status == QOBS_OK)
        status = check_dtype(o, layout.dtype, first, error);
    if (status == QOBS_OK)
        status = check_reading(o, &layout, true, reading, error);
    if (status == QOBS_OK)
        status = qobs_keep_reserve(o, &layout, &kept, error);
    if (status == QOBS_OK)
        status = reduce_batch(o, plan, &layout, value, &kept, &nonfinite, error);
    const bool nothing = status == QOBS_OK && saw_nothing(&layout, &kept);
    if (nothing && first && reading)
        status = qobs_fail(error, QOBS_ERROR_NO_DATA, "value: has no finite element, and there is nothing from before");
    if (status == QOBS_OK && has_whole)
        whole = whole_of(&layout, &kept.batch);
    if (status == QOBS_OK && qobs_searches_kept(&o->config))
        status = qobs_search_kept_reserve(o, plan, &layout, first, &kept, &record, &workspace, error);
    else if (status == QOBS_OK && qobs_searches(&o->config))
        status = qobs_search_observed(o, plan, value, has_whole ? &whole : NULL, &kept.batch, &record, error);
    if (status == QOBS_OK && qobs_weighs_columns(&o->config) && plan->value.ndim > 0)
        status = qobs_importance_reserve(&o->runtime, &o->importance, plan->value.shape[plan->value.ndim - 1], error);
    if (first)
        qobs_release_kept(&o->runtime, status == QOBS_OK && !nothing ? &o->kept : &kept);
    if (!first || (status == QOBS_OK && !nothing))
        o->kept = kept;
    qobs_search_record_release(&o->runtime, status == QOBS_OK ? &o->searched : &record);
    if (status != QOBS_OK) {
        qobs_search_workspace_release(&o->runtime, &workspace);
        return status;
    }
    o->counts.nan += nonfinite.nan;
    o->counts.inf += nonfinite.inf;
    if (nothing)
        return QOBS_OK;
    o->searched = record;
    o->layout = layout;
    o->fused = o->fused && qobs_has_whole(&o->config) && !all;
    qobs_keep(o, first);
    if (qobs_searches_kept(&o->config))
        qobs_search_kept(o, plan, value->data, &workspace);
    qobs_search_workspace_release(&o->runtime, &workspace);
    if (has_whole)
        qobs_keep_whole(&o->config, &o->whole, &whole);
    if (all)
        count_tokens(o, &plan->value);
    o->counts.batches++;
    o->counts.elements += (uint64_t)plan->value.elements;
    return QOBS_OK;
}

/* Takes value unless there is nothing to take, then reads. `kept`: these dimensions instead of the observer's granularity. */
static int take_and_read(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx, const struct axes *kept, bool all,
                         const struct reading *reading, qobs_error *error)
{
    qobs_plan *plan;
    struct view view;
    int status = qobs_view_of_tensor(&view, value, "value", error);
    if (status != QOBS_OK)
        return status;
    const bool nothing = qobs_keeps(&o->config) == KEEPS_NOTHING;
    if (view.elements == 0 || ignores_further(o) || nothing) {
        status = reading && !qobs_has_ranges(o) && !nothing
                     ? qobs_fail(error, QOBS_ERROR_NO_DATA, "value: has no elements, and there is nothing from before")
                     : check_reading(o, &o->layout, qobs_has_ranges(o), reading, error);
        if (status != QOBS_OK)
            return status;
        if (nothing && view.elements > 0) {
            o->counts.batches++;
            o->counts.elements += (uint64_t)view.elements;
            count_tokens(o, &view);
        }
        return read_all(o, reading, error);
    }
    status = kept ? qobs_plan_new_along(&plan, o->stages.granularity.params.keying, value, kept, &o->runtime, error)
                  : qobs_plan_new(&plan, &o->stages.granularity, value, g_idx, &o->runtime, error);
    if (status != QOBS_OK)
        return status;
    plan->as_f32 = dtype_of_ranges(&o->config, plan->dtype) != plan->dtype;
    const fp_mode mode = fp_enter();
    status = take(o, plan, value, all, reading, error);
    fp_leave(mode);
    qobs_plan_destroy(plan);
    return status == QOBS_OK ? read_all(o, reading, error) : status;
}

/* ---- Public ----------------------------------------------------------------------------------------------------------- */

static int no_observer(qobs_error *error)
{
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
}

int qobs_observer_observe(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx, qobs_error *error)
{
    return o ? take_and_read(o, value, g_idx, NULL, true, NULL, error) : no_observer(error);
}

int qobs_observer_observe_importance(qobs_observer *o, const qobs_tensor *activations, qobs_error *error)
{
    struct view view;
    if (!o)
        return no_observer(error);
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

int qobs_observer_record_tokens(qobs_observer *o, const qobs_tensor *value, qobs_error *error)
{
    struct view view;
    if (!o)
        return no_observer(error);
    const int status = qobs_view_of_tensor(&view, value, "value", error);
    enum qobs_kernel_dtype unused;
    if (status != QOBS_OK)
        return status;
    if (!qobs_kernel_dtype_of(view.dtype, &unused))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: dtype is %s, allowed are F32, BF16, F16 and F64",
                         qobs_dtype_name(view.dtype));
    count_tokens(o, &view);
    return qobs_succeed(error);
}

int qobs_observer_get_min_max(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx, void *min, void *max,
                              size_t size, qobs_error *error)
{
    if (!o)
        return no_observer(error);
    if (!min || !max)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", min ? "max" : "min");
    if (qobs_keeps(&o->config) != KEEPS_RANGE)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: %s keeps no minimum and maximum",
                         o->config.preset->name);
    const struct reading reading = {.ranges = true, .min = min, .max = max, .range_size = size};
    return take_and_read(o, value, g_idx, NULL, false, &reading, error);
}

int qobs_observer_get_qparams(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx, void *scale,
                              size_t scale_size, void *zero_point, size_t zero_point_size, qobs_error *error)
{
    if (!o)
        return no_observer(error);
    if (!value)
        return qobs_observer_qparams(o, scale, scale_size, zero_point, zero_point_size, error);
    const struct reading reading = {.qparams = true,
                                    .scale = scale,
                                    .zero_point = zero_point,
                                    .scale_size = scale_size,
                                    .zero_point_size = zero_point_size};
    return take_and_read(o, value, g_idx, NULL, false, &reading, error);
}

int qobs_observer_get_qparams_along_dim(qobs_observer *o, const qobs_tensor *value, const int *dim, size_t count, void *scale,
                                        size_t scale_size, void *zero_point, size_t zero_point_size, qobs_error *error)
{
    if (!o)
        return no_observer(error);
    if (o->config.preset->family != FAMILY_LLMC || o->config.version != VERSION_2025_09)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: only those of llmc with version 2025-09 have this");
    if ((!dim && count > 0) || count > QOBS_MAX_NDIM)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "dim: %s", dim ? "has more entries than dimensions" : "is NULL");
    struct axes kept = {.count = (int)count};
    for (size_t i = 0; i < count; i++)
        kept.axis[i] = dim[i];
    const struct reading reading = {.qparams = true,
                                    .scale = scale,
                                    .zero_point = zero_point,
                                    .scale_size = scale_size,
                                    .zero_point_size = zero_point_size};
    return take_and_read(o, value, NULL, &kept, false, &reading, error);
}

int qobs_observer_get_global_min_max(qobs_observer *o, const qobs_tensor *value, void *min, void *max, size_t size,
                                     qobs_error *error)
{
    static const struct axes none = {0};
    struct qobs_nonfinite nonfinite = {0};
    struct whole batch = {0};
    qobs_plan *plan;
    if (!o)
        return no_observer(error);
    if (o->config.preset->family != FAMILY_LLMC || o->config.version == VERSION_CURRENT ||
        qobs_keeps(&o->config) != KEEPS_RANGE)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "observer: only those of llmc with version 2025-09 or 2025-10 keep a range of the whole");
    int status = qobs_plan_new_along(&plan, KEYING_NONE, value, &none, &o->runtime, error);
    if (status != QOBS_OK)
        return status;
    const size_t element = qobs_dtype_size(plan->dtype);
    batch.dtype = plan->dtype;
    if (size != element || !min || !max)
        status = qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "size: is %zu bytes for min and for max, expected %zu", size,
                           element);
    else if (plan->value.elements == 0 && o->whole.dtype == 0)
        status = qobs_fail(error, QOBS_ERROR_NO_DATA, "value: has no elements, and there is nothing from before");
    else
        status = check_dtype(o, plan->dtype, !qobs_has_ranges(o), error);
    const fp_mode mode = fp_enter();
    if (status == QOBS_OK && plan->value.elements > 0) {
        status = qobs_reduce_minmax(&o->runtime, o->kernels, plan, value->data, qobs_nonfinite_mode(&o->config), batch.min,
                                    batch.max, &nonfinite, error);
        if (status == QOBS_OK && qobs_searches(&o->config))
            status = qobs_search_global(o, plan, value->data, batch.min, batch.max, error);
        if (status == QOBS_OK) {
            qobs_keep_whole(&o->config, &o->whole, &batch);
            o->fused = false;
        }
    }
    fp_leave(mode);
    qobs_plan_destroy(plan);
    if (status != QOBS_OK)
        return status;
    memcpy(min, o->whole.min, element);
    memcpy(max, o->whole.max, element);
    return qobs_succeed(error);
}
