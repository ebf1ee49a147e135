/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales and zero points of vLLM 0.32 in float: dynamic_scaled_int8_quant for CPUs (csrc/cpu), whose codes have the
 * zero point before it becomes an int32, QuantFP8.forward_native
 * (model_executor/layers/quantization/input_quant_fp8.py), and per_token_group_quant_fp8 (utils/fp8_utils.py there),
 * and ref_nvfp4_quant (utils/nvfp4_emulation_utils.py). */
#include "formula/shared.h"
#include "number/native.h"

/* NaN stays. */
static float magnitude(float low, float high)
{
    const float a = fabsf(low), b = fabsf(high);
    return a > b || isnan(a) ? a : b;
}

static int int8(const struct formula_params *params, qobs_dtype dtype, double min, double max, struct qparam *result,
                qobs_error *error)
{
    const float low = (float)min, high = (float)max, scale = (high - low) / 255;
    (void)params, (void)dtype, (void)error;
    *result = (struct qparam){(double)scale, (double)rintf(-128 - low / scale)};
    return QOBS_OK;
}

const struct formula_ops qobs_formula_vllm_int8 = {
    .dtypes = qobs_fixed_dtypes, .qparam = int8, .needs_data = true, .real_zero_points = true};

static const double largest_e4m3 = 448;

/* ue8m0: the logarithm is rounded to float before it is rounded up, so that a scale just above a power of two becomes
 * that power. No scale has a logarithm near the middle of two floats there, so that any log2 will do. */
static float power_of_2(float scale)
{
    const bool has_logarithm = scale > 0 && isfinite(scale);
    return has_logarithm ? ldexpf(1, (int)ceilf((float)log2((double)scale))) : scale;
}

/* NaN stays. */
static float at_least(double least, float x) { return x < (float)least ? (float)least : x; }

static int fp8(const struct formula_params *params, qobs_dtype dtype, double min, double max, struct qparam *result,
               qobs_error *error)
{
    const struct vllm_scale *v = &params->vllm;
    const float amax = at_least(v->least_amax, magnitude((float)min, (float)max)), most = (float)largest_e4m3;
    const float quotient = v->by_reciprocal ? amax * (float)(1 / largest_e4m3) : amax / most;
    const float scale = v->ue8m0 ? power_of_2(at_least(v->least_quotient, quotient)) : quotient;
    (void)dtype, (void)error;
    *result = (struct qparam){(double)at_least(v->least, scale), 0};
    return QOBS_OK;
}

const struct formula_ops qobs_formula_vllm_fp8 = {.dtypes = qobs_fixed_dtypes, .qparam = fp8, .needs_data = true};

/* ---- Loops ------------------------------------------------------------------------------------------------------- */

#define NATIVE_BODY "formula/vllm.inl.h"
#include "number/native_each.inl.h"

/* Scales of many ranges without zero points. */
#define SYMMETRIC_SCALES(name)                                                                                         \
    static int name(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,    \
                    qobs_error *error)                                                                                 \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        if (zero_point)                                                                                                \
            memset(zero_point, 0, r->n * sizeof(int32_t));                                                             \
        if (scale && r->magnitudes)                                                                                    \
            FOR_NATIVE(r->dtype, name##_scales, true, r, scale)                                                        \
        else if (scale)                                                                                                \
            FOR_NATIVE(r->dtype, name##_scales, false, r, scale)                                                       \
        return qobs_succeed(error);                                                                                    \
    }
SYMMETRIC_SCALES(symmetric_int8)
SYMMETRIC_SCALES(fp4)
#undef SYMMETRIC_SCALES

/* vLLM makes it of a weight that it quantizes while it loads it (layers/quantization/online/nvfp4.py). */
static float fp4_global_scale(const struct formula_params *params, qobs_dtype dtype, double amax)
{
    (void)params, (void)dtype;
    return 6 * (float)largest_e4m3 / at_least(1e-8, (float)amax);
}

const struct formula_ops qobs_formula_vllm_symmetric_int8 = {
    .dtypes = qobs_fixed_dtypes, .qparams = symmetric_int8, .needs_data = true};
const struct formula_ops qobs_formula_vllm_fp4 = {
    .dtypes = qobs_fixed_dtypes, .qparams = fp4, .global_scale = fp4_global_scale, .needs_data = true};
