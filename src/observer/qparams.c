/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/observer.h"

#include "base/fpenv.h"
#include "base/struct_size.h"
#include "histogram/from_histogram.h"

static const struct shape one = {.ndim = 1, .extent = {1}};

/* ---- Dtypes and shapes ------------------------------------------------------------------------------------------- */

/* Upstream's histogram without a range. */
static bool has_no_range(const qobs_observer *o)
{
    const struct histogram_range *ops = o->stages.range.ops->histogram;
    return ops && !ops->find;
}

bool qobs_found_is_list(const qobs_observer *o)
{
    const struct histogram_range *ops = o->stages.range.ops->histogram;
    return ops && ops->empty_is_list && !qobs_state_is_empty(&o->state) && qobs_is_empty(&o->state.histogram);
}

void qobs_qparam_dtypes(const qobs_observer *o, const struct layout *layout, bool observed, qobs_dtype *scale,
                        qobs_dtype *zero_point)
{
    static const float any = 1;
    struct range_view ranges = {.dtype = layout->dtype, .n = layout->qparams, .rank = RANK_TENSOR};
    if (!observed || has_no_range(o))
        ranges.rank = RANK_EMPTY;
    else if (layout->range.ndim == 0 && !qobs_found_is_list(o))
        ranges.rank = RANK_SCALAR;
    ranges.global_scale = o->stages.traits.global != GLOBAL_NONE ? &any : NULL;
    const struct qparam_dtypes dtypes = qobs_formula_dtypes(&o->stages.formula, &ranges);
    *scale = dtypes.scale;
    *zero_point = dtypes.zero_point;
}

struct shape qobs_scale_shape(const qobs_observer *o)
{
    if (has_no_range(o))
        return o->stages.formula.params.shape_without_data;
    return qobs_found_is_list(o) || o->stages.traits.scale_is_list ? one : o->state.layout.scale;
}

int qobs_check_size(size_t size, const char *name, size_t expected, qobs_error *error)
{
    if (size == expected)
        return QOBS_OK;
    return qobs_invalid(error, "size: is %zu bytes for %s, expected %zu", size, name, expected);
}

int qobs_check_qparam_sizes(const qobs_observer *o, const struct layout *layout, bool observed,
                            const qobs_qparam_buffers *out, qobs_error *error)
{
    qobs_dtype scale, zero_point;
    qobs_qparam_dtypes(o, layout, observed, &scale, &zero_point);
    if (out->scale)
        RETURN_IF_FAILED(qobs_check_size(out->scale_size, "scale", layout->qparams * qobs_dtype_size(scale), error));
    return out->zero_point ? qobs_check_size(out->zero_point_size, "zero_point",
                                             layout->qparams * qobs_dtype_size(zero_point), error)
                           : QOBS_OK;
}

int qobs_find_ranges(const qobs_observer *o, float *min, float *max, void *scale, void *zero_point, qobs_error *error)
{
    const struct range_request request = {.runtime = &o->runtime,
                                          .rule = &o->stages.range,
                                          .formula = &o->stages.formula,
                                          .histogram = &o->state.histogram,
                                          .rank = o->state.layout.range.ndim == 0 ? RANK_SCALAR : RANK_TENSOR,
                                          .data_min = (const float *)(const void *)o->state.ranges.min,
                                          .data_max = (const float *)(const void *)o->state.ranges.max,
                                          .min = min,
                                          .max = max,
                                          .scale = scale,
                                          .zero_point = zero_point};
    return qobs_find_range(&request, error);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

bool qobs_global_scale_is_known(const qobs_observer *o)
{
    if (o->fused)
        return true;
    return o->stages.traits.global == GLOBAL_FROM_TENSORS ? o->global_range.dtype != 0
                                                          : !qobs_state_is_empty(&o->state);
}

float qobs_compute_global_scale(const qobs_observer *o)
{
    const struct range_view ranges = qobs_view_global(o);
    const double amax = o->fused ? o->fused_amax : qobs_amax_of_ranges(&ranges);
    return o->stages.formula.ops->global_scale(&o->stages.formula.params,
                                               qobs_is_optimal(o) ? QOBS_F32 : o->state.layout.dtype, amax);
}

static int write_optimal(const qobs_observer *o, void *scale, void *zero_point, qobs_error *error)
{
    qobs_dtype dtype, zero_point_dtype;
    if (qobs_optimal_is_stale(o))
        return qobs_fail(error, QOBS_ERROR_NO_DATA,
                         "scale: was searched under another global scale, observe the weight again");
    qobs_qparam_dtypes(o, &o->state.layout, true, &dtype, &zero_point_dtype);
    FP_SCOPE;
    qobs_optimal_result_write(&o->state.optimal, dtype, scale, zero_point_dtype, zero_point);
    return qobs_succeed(error);
}

int qobs_write_qparams(const qobs_observer *o, void *scale, void *zero_point, qobs_error *error)
{
    if (o->state.histogram.bins > 0 && (scale || zero_point))
        return qobs_find_ranges(o, NULL, NULL, scale, zero_point, error);
    if (o->state.optimal.qparams > 0)
        return write_optimal(o, scale, zero_point, error);
    struct range_view ranges = qobs_view_ranges(o);
    const bool global = !qobs_state_is_empty(&o->state) && o->stages.traits.global != GLOBAL_NONE;
    if (global && !qobs_global_scale_is_known(o))
        return qobs_fail(error, QOBS_ERROR_NO_DATA,
                         "scale: needs the global scale, for which no global range has been observed");
    FP_SCOPE;
    const float g = global ? qobs_compute_global_scale(o) : 1;
    ranges.global_scale = global ? &g : NULL;
    int status = qobs_formula_qparams(&o->stages.formula, &ranges, scale, zero_point, error);
    const struct state_range *ops = o->stages.range.ops->state;
    if (status == QOBS_OK && ops && ops->scale) {
        const struct search_state state = qobs_search_state(o);
        status = ops->scale(&state, o->state.layout.dtype, scale, error);
    }
    if (status == QOBS_OK && o->state.mode.candidates > 0)
        qobs_mode_read(&o->state.mode, scale, zero_point);
    return status;
}

/* 1 without a global scale: scales are divided by it. */
static int read_global_scale(const qobs_observer *o, float *global_scale, qobs_error *error)
{
    *global_scale = 1;
    if (o->stages.traits.global == GLOBAL_NONE)
        return QOBS_OK;
    if (!qobs_global_scale_is_known(o))
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "global_scale: nothing has been observed for it");
    FP_SCOPE;
    *global_scale = qobs_compute_global_scale(o);
    return QOBS_OK;
}

int qobs_qparam_buffers_read(qobs_qparam_buffers *out, const qobs_qparam_buffers *given, qobs_error *error)
{
    RETURN_IF_FAILED(STRUCTURE_READ("out", qobs_qparam_buffers, out, given, global_scale, error));
    out->struct_size = sizeof *out;
    if (out->scale_size > 0)
        RETURN_IF_FAILED(qobs_require(out->scale, "scale", error));
    return out->zero_point_size > 0 ? qobs_require(out->zero_point, "zero_point", error) : QOBS_OK;
}

int qobs_qparams_from_observer(const qobs_observer *o, const qobs_qparam_buffers *given, qobs_error *error)
{
    qobs_qparam_buffers out;
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    const bool observed = !qobs_state_is_empty(&o->state);
    float global_scale = 1;
    RETURN_IF_FAILED(qobs_qparam_buffers_read(&out, given, error));
    if (!observed)
        RETURN_IF_FAILED(qobs_write_qparams(o, NULL, NULL, error));
    RETURN_IF_FAILED(qobs_check_qparam_sizes(o, &o->state.layout, observed, &out, error));
    if (out.global_scale)
        RETURN_IF_FAILED(read_global_scale(o, &global_scale, error));
    RETURN_IF_FAILED(qobs_write_qparams(o, out.scale, out.zero_point, error));
    if (out.global_scale)
        *out.global_scale = global_scale;
    return QOBS_OK;
}
