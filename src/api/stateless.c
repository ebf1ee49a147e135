/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Ranges, qparams, global scales and token counts without an observer, for runtimes. */
#include "qobs/stateless.h"

#include <math.h>

#include "base/counts.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "config/stages.h"
#include "kernels/dispatch.h"
#include "measure/tokens.h"
#include "plan/make_plan.h"
#include "qobs/plan.h"
#include "reduce/reduce.h"

/* Finds the ranges and unmakes the plan. */
static int minmax(qobs_plan *plan, const qobs_config *config, const struct runtime *runtime, const qobs_tensor *value,
                  void *min, void *max, qobs_counts *counts, qobs_error *error)
{
    struct qobs_nonfinite nonfinite = {0};
    int status = QOBS_OK;
    if (plan->value.elements == 0)
        status = qobs_fail(error, QOBS_ERROR_NO_DATA, "value: has no elements");
    const fp_mode mode = fp_enter();
    if (status == QOBS_OK)
        status = qobs_reduce_minmax(runtime, qobs_kernels_active(), plan, value->data,
                                    (enum nonfinite_mode)config->nonfinite, min, max, &nonfinite, error);
    fp_leave(mode);
    if (status == QOBS_OK && counts) {
        const bool quark = config->preset->family == FAMILY_QUARK;
        const qobs_counts all = {.batches = 1,
                                 .elements = (uint64_t)plan->value.elements,
                                 .nan = nonfinite.nan,
                                 .inf = nonfinite.inf,
                                 .tokens = qobs_tokens(&plan->value),
                                 .nonzero_tokens = quark ? qobs_nonzero_tokens(&plan->value) : 0};
        counts_copy(&all, counts);
    }
    qobs_plan_unmake(plan);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

int qobs_minmax(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx, void *min, void *max,
                qobs_counts *counts, const qobs_runtime *hooks, qobs_error *error)
{
    struct granularity granularity;
    struct runtime runtime;
    qobs_plan plan;
    if (!min || !max)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", min ? "max" : "min");
    int status = counts ? counts_check(counts, error) : QOBS_OK;
    if (status == QOBS_OK)
        status = qobs_runtime_resolve(&runtime, hooks, error);
    if (status == QOBS_OK)
        status = qobs_config_check(config, error);
    if (status == QOBS_OK) {
        qobs_resolve_granularity(config, &granularity);
        status = qobs_plan_make(&plan, &granularity, value, g_idx, &runtime, error);
    }
    return status == QOBS_OK ? minmax(&plan, config, &runtime, value, min, max, counts, error) : status;
}

int qobs_global_minmax(const qobs_config *config, const qobs_tensor *value, void *min, void *max, qobs_counts *counts,
                       const qobs_runtime *hooks, qobs_error *error)
{
    static const struct axes none = {0};
    struct runtime runtime;
    qobs_plan plan;
    if (!min || !max)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", min ? "max" : "min");
    int status = counts ? counts_check(counts, error) : QOBS_OK;
    if (status == QOBS_OK)
        status = qobs_runtime_resolve(&runtime, hooks, error);
    if (status == QOBS_OK)
        status = qobs_config_check(config, error);
    if (status == QOBS_OK)
        status = qobs_plan_make_along(&plan, KEYING_NONE, value, &none, &runtime, error);
    return status == QOBS_OK ? minmax(&plan, config, &runtime, value, min, max, counts, error) : status;
}

/* Checks a configuration and ranges for it, and resolves its formula. */
static int check_ranges(const qobs_config *config, qobs_dtype dtype, size_t count, const void *min, const void *max,
                        struct formula *formula, qobs_error *error)
{
    enum qobs_kernel_dtype unused;
    const int status = qobs_config_check(config, error);
    if (status != QOBS_OK)
        return status;
    qobs_resolve_formula(config, formula);
    const bool torch = formula->ops == &qobs_formula_torch;
    if (!qobs_kernel_dtype_of(dtype, &unused) || (torch && dtype != QOBS_F32))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "dtype: is %s, allowed are %s",
                         qobs_dtype_name(dtype) ? qobs_dtype_name(dtype) : "unknown",
                         torch ? "F32" : "F32, BF16, F16, F64");
    if (count > 0 && (!min || !max))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", min ? "max" : "min");
    return QOBS_OK;
}

int qobs_calculate_qparams(const qobs_config *config, qobs_dtype dtype, size_t count, const void *min, const void *max,
                           const float *global_scale, void *scale, void *zero_point, qobs_error *error)
{
    struct formula formula;
    int status = check_ranges(config, dtype, count, min, max, &formula, error);
    if (status == QOBS_OK && global_scale && !formula.ops->global_scale)
        status = qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "global_scale: %s has none", config->preset->name);
    if (status != QOBS_OK)
        return status;
    const struct range_view ranges = {
        .dtype = dtype, .n = count, .rank = formula.params.rank, .min = min, .max = max, .global_scale = global_scale};
    const fp_mode mode = fp_enter();
    status = qobs_formula_qparams(&formula, &ranges, scale, zero_point, error);
    fp_leave(mode);
    return status;
}

int qobs_global_scale(const qobs_config *config, qobs_dtype dtype, double min, double max, float *global_scale,
                      qobs_error *error)
{
    struct formula formula;
    int status = check_ranges(config, dtype, 1, &min, &max, &formula, error);
    if (status == QOBS_OK && !global_scale)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "global_scale: is NULL");
    if (status == QOBS_OK && !formula.ops->global_scale)
        status = qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "config: %s has no global scale", config->preset->name);
    if (status != QOBS_OK)
        return status;
    if (!isfinite(min) || !isfinite(max))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is %g, must be finite", isfinite(min) ? "max" : "min",
                         isfinite(min) ? max : min);
    const struct range_view range = {.dtype = QOBS_F64, .n = 1, .min = &min, .max = &max};
    const fp_mode mode = fp_enter();
    const double amax = qobs_amax_of_ranges(&range);
    const float g = formula.ops->global_scale(dtype, amax);
    fp_leave(mode);
    if (g == 0)
        return qobs_fail(error, QOBS_ERROR_NO_RESULT,
                         "global_scale: is 0 in F32 for the magnitude %g; dequantization divides by it", amax);
    *global_scale = g;
    return qobs_succeed(error);
}

int qobs_config_qparam_dtypes(const qobs_config *config, qobs_dtype dtype, qobs_dtype *scale, qobs_dtype *zero_point,
                              qobs_error *error)
{
    const int status = qobs_config_check(config, error);
    if (status != QOBS_OK)
        return status;
    if (!scale || !zero_point)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", scale ? "zero_point" : "scale");
    struct formula formula;
    qobs_resolve_formula(config, &formula);
    const struct range_view ranges = {.dtype = dtype, .rank = formula.params.rank};
    qobs_formula_dtypes(&formula, &ranges, scale, zero_point);
    return QOBS_OK;
}

int qobs_count_tokens(const qobs_tensor *value, uint64_t *tokens, uint64_t *nonzero_tokens, qobs_error *error)
{
    enum qobs_kernel_dtype unused;
    struct view view;
    const int status = qobs_view_of_tensor(&view, value, "value", error);
    if (status != QOBS_OK)
        return status;
    if (!qobs_kernel_dtype_of(view.dtype, &unused))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: dtype is %s, allowed are F32, BF16, F16 and F64",
                         qobs_dtype_name(view.dtype));
    if (tokens)
        *tokens = qobs_tokens(&view);
    if (nonzero_tokens)
        *nonzero_tokens = qobs_nonzero_tokens(&view);
    return qobs_succeed(error);
}
