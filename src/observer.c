/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The life of an observer: batches in, results out. */
#include <math.h>
#include <string.h>

#include "convention/convention.h"
#include "dispatch.h"
#include "error.h"
#include "fpenv.h"
#include "observer.h"
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

static void release_ranges(const struct runtime *runtime, struct ranges *ranges)
{
    qobs_release(runtime, ranges->min, ranges->size);
    *ranges = (struct ranges){0};
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
    *o = (qobs_observer){.config = *config, .runtime = runtime, .kernels = qobs_kernels_active()};
    *result = o;
    return qobs_succeed(error);
}

void qobs_observer_reset(qobs_observer *o)
{
    release_ranges(&o->runtime, &o->state);
    release_ranges(&o->runtime, &o->batch);
    *o = (qobs_observer){.config = o->config, .runtime = o->runtime, .kernels = o->kernels};
}

void qobs_observer_destroy(qobs_observer *o)
{
    if (!o)
        return;
    qobs_observer_reset(o);
    const struct runtime runtime = o->runtime;
    qobs_release(&runtime, o, sizeof *o);
}

/* ---- Batches -------------------------------------------------------------------------------------------------------------- */

/* torch's observers hold the range per tensor in 0-dimensional tensors. */
static int qparam_shape(const qobs_observer *o, const qobs_plan *plan, int64_t *shape)
{
    if (o->config.preset->granularity == GRANULARITY_TORCH_TENSOR)
        return 0;
    for (int i = 1; i < plan->ndim - 1; i++)
        shape[i - 1] = plan->shape[i];
    return plan->ndim - 2;
}

static int check_same_shape(const qobs_observer *o, const qobs_plan *plan, qobs_error *error)
{
    int64_t shape[QOBS_PLAN_MAX_NDIM];
    const int ndim = qparam_shape(o, plan, shape);
    bool same = ndim == o->ndim;
    for (int i = 0; same && i < ndim; i++)
        same = shape[i] == o->shape[i];
    if (!same)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "value: gives %lld qparams in %d dimensions, the batches before gave %zu in %d",
                         (long long)plan->qparams, ndim, o->qparams, o->ndim);
    if (plan->dtype != o->dtype && o->config.preset->family == FAMILY_LLMC)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: dtype is %s, the batches before were %s",
                         qobs_dtype_name(plan->dtype), qobs_dtype_name(o->dtype));
    return QOBS_OK;
}

/* Makes the freshly reduced batch the state, or merges it into the state. */
static void take_batch(qobs_observer *o, bool first)
{
    const double c = o->config.averaging_constant;
    switch (first ? STATISTIC_MEMORYLESS : o->config.preset->statistic) {
    case STATISTIC_RUNNING:
        qobs_update_running(o->dtype, o->entries, o->state.min, o->state.max, o->batch.min, o->batch.max);
        return;
    case STATISTIC_AVERAGE_TOWARDS:
        qobs_update_towards(o->dtype, o->entries, o->state.min, o->state.max, o->batch.min, o->batch.max, c);
        return;
    case STATISTIC_AVERAGE_LERP:
        if (c != 1) {
            qobs_update_lerp(o->dtype, o->entries, o->state.min, o->state.max, o->batch.min, o->batch.max, c);
            return;
        }
        break;
    case STATISTIC_MEMORYLESS:
        break;
    }
    const struct ranges old = o->state;
    o->state = o->batch;
    o->batch = old;
}

/* Ranges of the first batch's making: what they are and where they go. */
static int set_up(qobs_observer *o, const qobs_plan *plan, qobs_error *error)
{
    int64_t shape[QOBS_PLAN_MAX_NDIM];
    o->dtype = o->config.preset->family == FAMILY_TORCH ? QOBS_F32 : plan->dtype;
    o->qparams = (size_t)plan->qparams;
    o->entries = qobs_entries(&o->config, o->qparams);
    o->ndim = qparam_shape(o, plan, shape);
    if (o->ndim > QOBS_MAX_NDIM)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: its scale would have %d dimensions, allowed are %d",
                         o->ndim, QOBS_MAX_NDIM);
    memcpy(o->shape, shape, (size_t)o->ndim * sizeof *shape);
    return QOBS_OK;
}

/* The whole batch's range behind those of the qparams. */
static void append_whole(qobs_observer *o)
{
    const size_t size = qobs_dtype_size(o->dtype);
    unsigned char *min = o->batch.min + o->qparams * size, *max = o->batch.max + o->qparams * size;
    memcpy(min, o->batch.min, size);
    memcpy(max, o->batch.max, size);
    for (size_t i = 1; i < o->qparams; i++)
        qobs_update_running(o->dtype, 1, min, max, o->batch.min + i * size, o->batch.max + i * size);
}

/* The batch's range in o->batch, as o->dtype. */
static int reduce_batch(qobs_observer *o, const qobs_plan *plan, const qobs_tensor *value, struct qobs_nonfinite *nonfinite,
                        qobs_error *error)
{
    struct ranges native = {0};
    const bool convert = o->dtype != plan->dtype;
    int status = o->batch.min ? QOBS_OK : qobs_allocate_ranges(&o->runtime, &o->batch, o->dtype, o->entries, error);
    if (status == QOBS_OK && convert)
        status = qobs_allocate_ranges(&o->runtime, &native, plan->dtype, o->qparams, error);
    struct ranges *to = convert ? &native : &o->batch;
    if (status == QOBS_OK)
        status = qobs_reduce_minmax(&o->runtime, o->kernels, plan, value->data, (enum nonfinite_mode)o->config.nonfinite,
                                    to->min, to->max, nonfinite, error);
    if (status == QOBS_OK && convert) {
        qobs_convert_to_f32(plan->dtype, o->qparams, native.min, (float *)(void *)o->batch.min);
        qobs_convert_to_f32(plan->dtype, o->qparams, native.max, (float *)(void *)o->batch.max);
    }
    if (status == QOBS_OK && o->entries > o->qparams)
        append_whole(o);
    release_ranges(&o->runtime, &native);
    return status;
}

static bool ignores_further(const qobs_observer *o)
{
    return o->config.preset->family == FAMILY_LLMC && o->config.base_name == BASE_WEIGHT && o->counts.batches > 0 &&
           o->config.version == VERSION_CURRENT;
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
    status = qobs_plan_create(&plan, &o->config, value, g_idx, &runtime, error);
    if (status != QOBS_OK)
        return status;
    const bool first = o->counts.batches == 0;
    status = first ? set_up(o, plan, error) : check_same_shape(o, plan, error);
    struct qobs_nonfinite nonfinite = {0};
    const fp_mode mode = fp_enter();
    if (status == QOBS_OK)
        status = reduce_batch(o, plan, value, &nonfinite, error);
    if (status == QOBS_OK) {
        take_batch(o, first);
        o->fused = false;
        o->counts.batches++;
        o->counts.elements += (uint64_t)view.elements;
        o->counts.nan += nonfinite.nan;
        o->counts.inf += nonfinite.inf;
    } else if (first) {
        qobs_observer_reset(o);
    }
    fp_leave(mode);
    qobs_plan_destroy(plan);
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

/* ---- Results -------------------------------------------------------------------------------------------------------------- */

enum result {
    RESULT_MIN,
    RESULT_MAX,
    RESULT_GLOBAL_MIN,
    RESULT_GLOBAL_MAX,
    RESULT_GLOBAL_SCALE,
    RESULT_SCALE,
    RESULT_ZERO_POINT,
    RESULTS
};

static const char *result_name(const qobs_observer *o, enum result which)
{
    const bool torch_names = o->config.preset->family == FAMILY_TORCH;
    switch (which) {
    case RESULT_MIN:
        return torch_names ? "min_val" : "min_vals";
    case RESULT_MAX:
        return torch_names ? "max_val" : "max_vals";
    case RESULT_GLOBAL_MIN:
        return "global_min";
    case RESULT_GLOBAL_MAX:
        return "global_max";
    case RESULT_GLOBAL_SCALE:
        return "global_scale";
    case RESULT_SCALE:
        return "scale";
    default:
        return "zero_point";
    }
}

bool qobs_has_global_scale(const qobs_observer *o)
{
    return o->config.preset->family == FAMILY_LLMC && qobs_config_strategy(&o->config) == STRATEGY_TENSOR_GROUP;
}

size_t qobs_entries(const qobs_config *config, size_t qparams)
{
    const bool whole = config->preset->family == FAMILY_LLMC && config->version == VERSION_2025_10 &&
                       qobs_config_strategy(config) == STRATEGY_TENSOR_GROUP;
    return qparams + whole;
}

/* Is there such a result for this configuration? */
static bool has_result(const qobs_observer *o, enum result which)
{
    switch (which) {
    case RESULT_GLOBAL_SCALE:
        return qobs_has_global_scale(o);
    case RESULT_GLOBAL_MIN:
    case RESULT_GLOBAL_MAX:
        return o->entries > o->qparams;
    default:
        return true;
    }
}

/* What the convention sees of an observer with data. */
static struct range_view view_ranges(const qobs_observer *o)
{
    return (struct range_view){
        .dtype = o->dtype, .n = o->qparams, .scalar = o->ndim == 0, .min = o->state.min, .max = o->state.max};
}

static float global_scale(const qobs_observer *o)
{
    struct range_view ranges = view_ranges(o);
    if (o->entries > o->qparams) { /* the range of the whole, which has been averaged on its own */
        const size_t before = o->qparams * qobs_dtype_size(o->dtype);
        ranges.min = o->state.min + before;
        ranges.max = o->state.max + before;
        ranges.n = 1;
    }
    return qobs_compressed_tensors_global_scale(&o->config, o->dtype,
                                                o->fused ? o->fused_amax : qobs_compressed_tensors_amax(&ranges));
}

/* torch answers (1.0, 0) when nothing has been observed, llm-compressor has no answer. */
static bool answers_without_data(const qobs_observer *o)
{
    return o->config.preset->family == FAMILY_TORCH;
}

static int check_answers(const qobs_observer *o, qobs_error *error)
{
    if (o->counts.batches > 0 || answers_without_data(o))
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been observed yet");
}

static int compute(const qobs_observer *o, void *scale, void *zero_point, qobs_error *error)
{
    const float none[2] = {INFINITY, -INFINITY};
    const bool observed = o->counts.batches > 0;
    int status = check_answers(o, error);
    if (status != QOBS_OK)
        return status;
    const fp_mode mode = fp_enter();
    if (observed) {
        struct range_view ranges = view_ranges(o);
        const float global = qobs_has_global_scale(o) ? global_scale(o) : 1;
        ranges.global_scale = qobs_has_global_scale(o) ? &global : NULL;
        status = qobs_convention(&o->config, &ranges, scale, zero_point, error);
    } else {
        const int64_t zero = 0;
        const struct range_view nothing = {.dtype = QOBS_F32, .n = 1, .scalar = true, .min = &none[0], .max = &none[1]};
        status = qobs_convention(&o->config, &nothing, scale, NULL, error);
        if (zero_point)
            memcpy(zero_point, &zero, sizeof zero);
    }
    fp_leave(mode);
    return status;
}

static void describe(const qobs_observer *o, enum result which, qobs_result *result)
{
    qobs_dtype scale, zero_point;
    const size_t struct_size = result->struct_size;
    const bool observed = o->counts.batches > 0;
    const bool range = which <= RESULT_GLOBAL_MAX;
    const qobs_dtype dtype = observed ? o->dtype : QOBS_F32;
    qobs_convention_dtypes(&o->config, dtype, observed, &scale, &zero_point);
    if (qobs_has_global_scale(o))
        scale = QOBS_F32;
    *result = (qobs_result){
        .struct_size = struct_size,
        .name = result_name(o, which),
        .dtype = range ? dtype : which == RESULT_ZERO_POINT ? zero_point : scale,
        .ndim = o->ndim,
    };
    if (which >= RESULT_GLOBAL_MIN && which <= RESULT_GLOBAL_SCALE) {
        result->ndim = 1;
        result->shape[0] = 1;
        result->size = qobs_dtype_size(result->dtype);
        return;
    }
    memcpy(result->shape, o->shape, sizeof o->shape);
    if (o->ndim == 0 && !range) { /* upstreams return at least one dimension */
        result->ndim = 1;
        result->shape[0] = 1;
    }
    result->size = (observed ? o->qparams : 1) * qobs_dtype_size(result->dtype);
}

/* Which results there are: scale and zero point only where the ranges leave any. */
static size_t available(const qobs_observer *o, enum result which[RESULTS])
{
    size_t n = 0;
    for (int i = 0; i < RESULT_SCALE && o->counts.batches > 0; i++)
        if (has_result(o, (enum result)i))
            which[n++] = (enum result)i;
    if (compute(o, NULL, NULL, NULL) == QOBS_OK) {
        which[n++] = RESULT_SCALE;
        which[n++] = RESULT_ZERO_POINT;
    }
    return n;
}

size_t qobs_observer_result_count(const qobs_observer *o)
{
    enum result which[RESULTS];
    return available(o, which);
}

static int check_result(const qobs_result *result, qobs_error *error)
{
    if (!result || result->struct_size < sizeof *result)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "result: struct_size is %zu, expected %zu",
                         result ? result->struct_size : 0, sizeof *result);
    return QOBS_OK;
}

int qobs_observer_result(const qobs_observer *o, size_t index, qobs_result *result, qobs_error *error)
{
    enum result which[RESULTS];
    const size_t n = available(o, which);
    if (check_result(result, error) != QOBS_OK)
        return QOBS_ERROR_INVALID_ARGUMENT;
    if (index >= n)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "index: is %zu, there are %zu results", index, n);
    describe(o, which[index], result);
    return qobs_succeed(error);
}

static int which_result(const qobs_observer *o, const char *name, enum result *which, qobs_error *error)
{
    for (int i = 0; name && i < RESULTS; i++)
        if (strcmp(name, result_name(o, (enum result)i)) == 0) {
            *which = (enum result)i;
            if (!has_result(o, *which))
                return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "name: %s comes with strategy tensor_group%s only", name,
                                 i == RESULT_GLOBAL_SCALE ? "" : " and version 2025-10");
            if (i >= RESULT_SCALE)
                return compute(o, NULL, NULL, error);
            if (o->counts.batches > 0)
                return QOBS_OK;
            return qobs_fail(error, QOBS_ERROR_NO_DATA, "%s: nothing has been observed yet", name);
        }
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "name: '%s' is no result; known are %s, %s, scale, zero_point",
                     name ? name : "(null)", result_name(o, RESULT_MIN), result_name(o, RESULT_MAX));
}

int qobs_observer_find(const qobs_observer *o, const char *name, qobs_result *result, qobs_error *error)
{
    enum result which;
    int status = check_result(result, error);
    if (status == QOBS_OK)
        status = which_result(o, name, &which, error);
    if (status != QOBS_OK)
        return status;
    describe(o, which, result);
    return qobs_succeed(error);
}

static int check_size(const qobs_observer *o, enum result which, size_t size, qobs_error *error)
{
    qobs_result result = {.struct_size = sizeof result};
    describe(o, which, &result);
    if (size != result.size)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "size: is %zu bytes for %s, expected %zu", size, result.name,
                         result.size);
    return QOBS_OK;
}

int qobs_observer_read(const qobs_observer *o, const char *name, void *out, size_t size, qobs_error *error)
{
    enum result which;
    int status = which_result(o, name, &which, error);
    if (status == QOBS_OK)
        status = check_size(o, which, size, error);
    if (status != QOBS_OK)
        return status;
    switch (which) {
    case RESULT_MIN:
        memcpy(out, o->state.min, size);
        return qobs_succeed(error);
    case RESULT_MAX:
        memcpy(out, o->state.max, size);
        return qobs_succeed(error);
    case RESULT_GLOBAL_MIN:
        memcpy(out, o->state.min + o->qparams * size, size);
        return qobs_succeed(error);
    case RESULT_GLOBAL_MAX:
        memcpy(out, o->state.max + o->qparams * size, size);
        return qobs_succeed(error);
    case RESULT_GLOBAL_SCALE: {
        const fp_mode mode = fp_enter();
        const float scale = global_scale(o);
        fp_leave(mode);
        memcpy(out, &scale, sizeof scale);
        return qobs_succeed(error);
    }
    case RESULT_SCALE:
        return compute(o, out, NULL, error);
    default:
        return compute(o, NULL, out, error);
    }
}

int qobs_observer_qparams(const qobs_observer *o, void *scale, size_t scale_size, void *zero_point, size_t zero_point_size,
                          qobs_error *error)
{
    int status = check_answers(o, error);
    if (status == QOBS_OK && scale)
        status = check_size(o, RESULT_SCALE, scale_size, error);
    if (status == QOBS_OK && zero_point)
        status = check_size(o, RESULT_ZERO_POINT, zero_point_size, error);
    return status == QOBS_OK ? compute(o, scale, zero_point, error) : status;
}

/* ---- Fusion --------------------------------------------------------------------------------------------------------------- */

int qobs_observers_fuse(qobs_observer *const *observers, size_t count, qobs_error *error)
{
    if (count > 0 && !observers)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observers: is NULL");
    double amax = 0;
    for (size_t i = 0; i < count; i++) {
        const qobs_observer *o = observers[i];
        if (!o || !qobs_has_global_scale(o))
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observers[%zu]: %s", i,
                             o ? "has no global scale: its strategy is not tensor_group" : "is NULL");
        if (o->counts.batches == 0)
            return qobs_fail(error, QOBS_ERROR_NO_DATA, "observers[%zu]: nothing has been observed yet", i);
        const struct range_view ranges = view_ranges(o);
        const double own = qobs_compressed_tensors_amax(&ranges);
        amax = own > amax || isnan(own) ? own : amax;
    }
    for (size_t i = 0; i < count; i++) {
        observers[i]->fused = true;
        observers[i]->fused_amax = amax;
    }
    return qobs_succeed(error);
}

int qobs_observer_set_amax(qobs_observer *o, double amax, qobs_error *error)
{
    if (!o || !qobs_has_global_scale(o))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: %s",
                         o ? "has no global scale: its strategy is not tensor_group" : "is NULL");
    if (amax < 0)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "amax: is %g, must not be negative", amax);
    o->fused = true;
    o->fused_amax = amax;
    return qobs_succeed(error);
}
