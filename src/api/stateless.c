/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Ranges, qparams, global scales and token counts without an observer, for runtimes. */
#include "qobs/stateless.h"

#include <math.h>

#include "base/struct_size.h"
#include "base/fpenv.h"
#include "config/resolve.h"
#include "kernels/dispatch.h"
#include "number/convert.h"
#include "plan/make_plan.h"
#include "measure/reduce.h"

/* The granularity that keeps the axes of the arguments. */
static int keep_axes(const qobs_minmax_args *a, struct granularity *granularity, qobs_error *error)
{
    if (a->axis_count > QOBS_MAX_NDIM)
        return qobs_invalid(error, "axis_count: is %zu, allowed are 0 to %d", a->axis_count, QOBS_MAX_NDIM);
    if (!a->axes && a->axis_count > 0)
        return qobs_invalid(error, "axes: is NULL, but axis_count is %zu", a->axis_count);
    *granularity =
        (struct granularity){.ops = &qobs_granularity_modelopt_axes, .params = {.axes = {.count = (int)a->axis_count}}};
    for (size_t i = 0; i < a->axis_count; i++)
        granularity->params.axes.axis[i] = a->axes[i];
    return QOBS_OK;
}

static int make_plan(qobs_plan *plan, const qobs_minmax_args *a, const struct runtime *runtime, qobs_error *error)
{
    struct granularity granularity;
    if (a->axes || a->axis_count > 0 || !a->config)
        RETURN_IF_FAILED(keep_axes(a, &granularity, error));
    else
        qobs_resolve_granularity(a->config, &granularity);
    return qobs_plan_make(plan, &granularity, a->value, a->g_idx, runtime, error);
}

static int make_global_plan(qobs_plan *plan, const qobs_minmax_args *a, const struct runtime *runtime,
                            qobs_error *error)
{
    if (a->g_idx || a->axes || a->axis_count > 0)
        return qobs_invalid(error, "%s: has no meaning for the complete tensor",
                            a->g_idx  ? "g_idx"
                            : a->axes ? "axes"
                                      : "axis_count");
    RETURN_IF_FAILED(qobs_require(a->config, "config", error));
    return qobs_plan_make(plan, &qobs_whole_tensor, a->value, NULL, runtime, error);
}

/* Checks the sizes, finds the ranges and counts. */
static int measure(const qobs_plan *plan, const qobs_minmax_args *a, const struct runtime *runtime, qobs_error *error)
{
    const enum nonfinite_mode treatment = a->config ? (enum nonfinite_mode)a->config->nonfinite : NONFINITE_REFUSE;
    const size_t size = (size_t)plan->qparams * qobs_dtype_size(plan->dtype);
    struct nonfinite_count nonfinite = {0};
    struct observer_traits traits = {0};
    RETURN_IF_FAILED(array_check("min", a->min, a->size, size, error));
    RETURN_IF_FAILED(array_check("max", a->max, a->size, size, error));
    if (plan->value.elements == 0)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "value: has no elements");
    FP_SCOPE;
    const int status = qobs_reduce_minmax(runtime, qobs_kernels_active(), plan, a->value->data, treatment, a->min,
                                          a->max, &nonfinite, error);
    if (status != QOBS_OK || !a->counts)
        return status;
    if (a->config)
        qobs_resolve_traits(a->config, &traits);
    const qobs_counts all = {.batches = 1,
                             .elements = (uint64_t)plan->value.elements,
                             .nan = nonfinite.nan,
                             .inf = nonfinite.inf,
                             .tokens = qobs_tokens(&plan->value),
                             .nonzero_tokens = traits.counts_nonzero_tokens ? qobs_nonzero_tokens(&plan->value) : 0};
    counts_copy(&all, a->counts);
    return QOBS_OK;
}

static int minmax(const qobs_minmax_args *args, bool global, qobs_error *error)
{
    struct runtime runtime;
    qobs_minmax_args a;
    qobs_plan plan;
    RETURN_IF_FAILED(ARGS_READ(qobs_minmax_args, &a, args, runtime, error));
    if (a.counts)
        RETURN_IF_FAILED(counts_check("counts", a.counts, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, a.runtime, error));
    if (a.config)
        RETURN_IF_FAILED(qobs_config_check(a.config, error));
    RETURN_IF_FAILED((global ? make_global_plan : make_plan)(&plan, &a, &runtime, error));
    const int status = measure(&plan, &a, &runtime, error);
    qobs_plan_unmake(&plan);
    return qobs_finish(status, error);
}

int qobs_minmax(const qobs_minmax_args *args, qobs_error *error) { return minmax(args, false, error); }

int qobs_global_minmax(const qobs_minmax_args *args, qobs_error *error) { return minmax(args, true, error); }

/* Checks a configuration, and a dtype of ranges that its formula takes if they are `given`; resolves the formula. */
static int check_formula(const qobs_config *config, qobs_dtype dtype, bool given, struct formula *formula,
                         qobs_error *error)
{
    enum kernel_dtype unused;
    RETURN_IF_FAILED(qobs_config_check(config, error));
    qobs_resolve_formula(config, formula);
    const bool only_f32 = given && formula->ops->only_f32;
    if (qobs_kernel_dtype_of(dtype, &unused) && (!only_f32 || dtype == QOBS_F32))
        return QOBS_OK;
    return qobs_invalid(error, "dtype: is %s (%d), allowed are %s",
                        qobs_dtype_name(dtype) ? qobs_dtype_name(dtype) : "unknown", (int)dtype,
                        only_f32 ? "F32" : "F32, BF16, F16, F64");
}

/* A global scale that is not F32 keeps the scales of ranges of its dtype in that dtype. */
static int check_global_scale(const qobs_qparams_from_ranges_args *a, const struct formula *formula, qobs_error *error)
{
    const struct formula_ops *ops = formula->ops;
    const qobs_dtype dtype = a->global_scale_dtype;
    RETURN_IF_FAILED(qobs_check_global_scale(a->global_scale, error));
    if (a->global_scale && !ops->global_scale && !(ops->block_scales && formula->params.quark.block_scales))
        return qobs_invalid(error, "global_scale: %s has none%s", a->config->preset->name,
                            ops->block_scales ? " without dtype=fp4" : "");
    if ((int)dtype == 0 || (dtype == QOBS_F32 && a->global_scale))
        return QOBS_OK;
    if (!a->global_scale)
        return qobs_invalid(error, "global_scale_dtype: is %d, but global_scale is NULL", (int)dtype);
    if (!formula->params.native_global_scale || (dtype != QOBS_BF16 && dtype != QOBS_F16))
        return qobs_invalid(error, "global_scale_dtype: is %s (%d), allowed are F32%s",
                            qobs_dtype_name(dtype) ? qobs_dtype_name(dtype) : "unknown", (int)dtype,
                            formula->params.native_global_scale ? ", BF16, F16" : "");
    if (qobs_round_to(dtype, (double)*a->global_scale) != (double)*a->global_scale)
        return qobs_invalid(error, "global_scale: %.9g is no %s number", (double)*a->global_scale,
                            qobs_dtype_name(dtype));
    return QOBS_OK;
}

static int check_calculation(const qobs_qparams_from_ranges_args *a, const struct formula *formula,
                             const struct range_view *ranges, qobs_error *error)
{
    if (a->count > (size_t)1 << 48)
        return qobs_invalid(error, "count: is %zu, allowed are 0 to 2^48", a->count);
    RETURN_IF_FAILED(check_global_scale(a, formula, error));
    const struct qparam_dtypes dtypes = qobs_formula_dtypes(formula, ranges);
    const size_t size = a->count * qobs_dtype_size(a->dtype);
    RETURN_IF_FAILED(array_check("min", a->min, a->size, size, error));
    RETURN_IF_FAILED(array_check("max", a->max, a->size, size, error));
    if (a->scale || a->scale_size > 0)
        RETURN_IF_FAILED(
            array_check("scale", a->scale, a->scale_size, a->count * qobs_dtype_size(dtypes.scale), error));
    if (a->zero_point || a->zero_point_size > 0)
        return array_check("zero_point", a->zero_point, a->zero_point_size,
                           a->count * qobs_dtype_size(dtypes.zero_point), error);
    return QOBS_OK;
}

int qobs_qparams_from_ranges(const qobs_qparams_from_ranges_args *args, qobs_error *error)
{
    struct formula formula;
    qobs_qparams_from_ranges_args a;
    RETURN_IF_FAILED(ARGS_READ(qobs_qparams_from_ranges_args, &a, args, zero_point_size, error));
    RETURN_IF_FAILED(check_formula(a.config, a.dtype, true, &formula, error));
    const struct range_view ranges = {.dtype = a.dtype,
                                      .n = a.count,
                                      .rank = formula.params.rank,
                                      .min = a.min,
                                      .max = a.max,
                                      .global_scale = a.global_scale,
                                      .native_global_scale =
                                          a.global_scale && a.global_scale_dtype == a.dtype && a.dtype != QOBS_F32};
    RETURN_IF_FAILED(check_calculation(&a, &formula, &ranges, error));
    FP_SCOPE;
    return qobs_formula_qparams(&formula, &ranges, a.scale, a.zero_point, error);
}

int qobs_global_scale(const qobs_config *config, qobs_dtype dtype, double min, double max, float *global_scale,
                      qobs_error *error)
{
    struct formula formula;
    RETURN_IF_FAILED(check_formula(config, dtype, true, &formula, error));
    RETURN_IF_FAILED(qobs_require(global_scale, "global_scale", error));
    if (!formula.ops->global_scale)
        return qobs_invalid(error, "config: %s has no global scale", config->preset->name);
    if (!isfinite(min) || !isfinite(max))
        return qobs_invalid(error, "%s: is %g, must be finite", isfinite(min) ? "max" : "min",
                            isfinite(min) ? max : min);
    const struct range_view range = {.dtype = QOBS_F64, .n = 1, .min = &min, .max = &max};
    FP_SCOPE;
    const double amax = qobs_amax_of_ranges(&range);
    const float g = formula.ops->global_scale(&formula.params, dtype, amax);
    if (g == 0)
        return qobs_fail(error, QOBS_ERROR_NO_RESULT,
                         "global_scale: is 0 in F32 for the magnitude %g; dequantization divides by it", amax);
    *global_scale = g;
    return qobs_succeed(error);
}

int qobs_config_qparam_dtypes(const qobs_config *config, qobs_dtype dtype, qobs_dtype *scale, qobs_dtype *zero_point,
                              qobs_error *error)
{
    struct formula formula;
    RETURN_IF_FAILED(check_formula(config, dtype, false, &formula, error));
    if (!scale || !zero_point)
        return qobs_invalid(error, "%s: is NULL", scale ? "zero_point" : "scale");
    const struct range_view ranges = {.dtype = dtype, .rank = formula.params.rank};
    const struct qparam_dtypes dtypes = qobs_formula_dtypes(&formula, &ranges);
    *scale = dtypes.scale;
    *zero_point = dtypes.zero_point;
    return qobs_succeed(error);
}
