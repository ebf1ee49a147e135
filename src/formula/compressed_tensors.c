/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* compressed-tensors' calculate_qparams and generate_gparam (quantization/utils/helpers.py, mxfp_utils.py), in the
 * dtype of the ranges. tests/test_search_kernels.c compares search_shrink_native.inl.h with this file. */
#include "formula/shared.h"
#include "number/format.h"
#include "number/native.h"

/* The parameters of one call. */
struct numbers {
    const struct formula_params *params;
    bool symmetric, mx;
    enum scale_dtype scale_dtype;
    double eps;              /* replaces a scale of exactly 0 */
    double min_scale;        /* 2025: scales below it are raised to it before the zero point is made; else 0 */
    bool e4m3_scales;        /* 2025, e2m1 under a global scale: scales are e4m3, and 0.125 replaces 0 */
    const qobs_format *e4m3; /* of zero points in that dtype */
    bool wide_zero_point;    /* formed in f32 instead of the ranges' dtype */
    bool magnitudes;         /* as in struct range_view; the global scale is finite and not below 0 */
    const float *global_scale;
    bool native_products; /* with the global scale: in the ranges' dtype instead of f32 */
};

/* NaN stays NaN, as in torch.clamp. */
static inline double clamp(double x, double min, double max) { return x < min ? min : x > max ? max : x; }

static void put_zero_point(const struct numbers *q, void *out, size_t i, double value)
{
    /* upstream's cast of NaN on x86 gives 0 for the narrow types */
    const int64_t k = isnan(value) ? 0 : (int64_t)rint(clamp(value, INT32_MIN, INT32_MAX));
    switch (q->params->compressed_tensors.zero_point_dtype) {
    case QOBS_I8:
        ((int8_t *)out)[i] = (int8_t)clamp((double)k, INT8_MIN, INT8_MAX);
        break;
    case QOBS_U8:
        ((uint8_t *)out)[i] = (uint8_t)clamp((double)k, 0, UINT8_MAX);
        break;
    case QOBS_I16:
        ((int16_t *)out)[i] = (int16_t)clamp((double)k, INT16_MIN, INT16_MAX);
        break;
    case QOBS_I32:
        ((int32_t *)out)[i] = (int32_t)k;
        break;
    case QOBS_BF16:
        ((uint16_t *)out)[i] = bf16_of_float((float)value);
        break;
    case QOBS_F16:
        ((uint16_t *)out)[i] = f16_of_float((float)clamp(value, -65504, 65504));
        break;
    case QOBS_F32:
        ((float *)out)[i] = (float)value;
        break;
    default:
        ((uint8_t *)out)[i] = (uint8_t)qobs_format_encode(q->e4m3, (float)value, true);
        break;
    }
}

/* A scale rounded to the dtype it will be stored in. Exponents (MX) are integers already. */
static inline double round_scale(enum scale_dtype dtype, double s)
{
    switch (dtype) {
    case SCALE_F32:
        return (double)(float)s;
    case SCALE_BF16:
        return (double)float_of_bf16(bf16_of_float((float)clamp(s, -0x1.fep127, 0x1.fep127)));
    case SCALE_F16:
        return (double)float_of_f16(f16_of_float((float)clamp(s, -65504, 65504)));
    case SCALE_E4M3:
        return (double)grid_round_e4m3((float)clamp(s, -448, 448));
    case SCALE_U8:
        return rint(clamp(s, 0, 255));
    default:
        return s;
    }
}

#if defined(__OPTIMIZE_SIZE__)
#define LOOP_INLINE static inline
#else
#define LOOP_INLINE static inline __attribute__((always_inline))
#endif

#define NATIVE_BODY "formula/compressed_tensors.inl.h"
#include "number/native_each.inl.h"

/* In 2025 only e2m1 has scales under the global scale, which is F32. */
static struct qparam_dtypes dtypes(const struct formula_params *params, const struct range_view *r)
{
    const bool wide = params->compressed_tensors.year_2025 ? params->compressed_tensors.e2m1 : !r->native_global_scale;
    return (struct qparam_dtypes){r->global_scale && wide ? QOBS_F32 : r->dtype,
                                  params->compressed_tensors.zero_point_dtype};
}

static double epsilon(enum scale_dtype scale, qobs_dtype native)
{
    static const double of_scale[] = {
        [SCALE_F32] = 0x1p-23, [SCALE_BF16] = 0x1p-7, [SCALE_F16] = 0x1p-10, [SCALE_E4M3] = 0.125, [SCALE_U8] = 1};
    if (scale != SCALE_NATIVE)
        return of_scale[scale];
    return native == QOBS_F32 ? 0x1p-23 : native == QOBS_BF16 ? 0x1p-7 : native == QOBS_F16 ? 0x1p-10 : 0x1p-52;
}

static int qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
                   qobs_error *error)
{
    const bool year_2025 = params->compressed_tensors.year_2025;
    const bool e4m3_scales = year_2025 && params->compressed_tensors.e2m1 && r->global_scale;
    const struct numbers q = {
        .params = params,
        .symmetric = params->mapping == MAPPING_SYMMETRIC,
        .mx = params->compressed_tensors.mx,
        .scale_dtype = params->compressed_tensors.scale_dtype,
        .eps = epsilon(params->compressed_tensors.scale_dtype,
                       r->global_scale && !r->native_global_scale ? QOBS_F32 : r->dtype),
        .min_scale = year_2025 && !e4m3_scales ? 0x1p-23 : 0,
        .e4m3_scales = e4m3_scales,
        .e4m3 = qobs_format_at(FORMAT_E4M3),
        /* upstream's bit_min is a 0-dimensional f32 tensor, which decides the type only beside 0-dimensional ranges */
        .wide_zero_point = r->rank == RANK_SCALAR && r->dtype != QOBS_F64,
        .magnitudes = r->magnitudes && (!r->global_scale || bits_of_float(*r->global_scale) < 0x7f800000),
        .global_scale = year_2025 && !params->compressed_tensors.e2m1 ? NULL : r->global_scale,
        .native_products = r->native_global_scale,
    };
    if (q.symmetric && zero_point)
        memset(zero_point, 0, r->n * qobs_dtype_size(params->compressed_tensors.zero_point_dtype));
    if (scale || !q.symmetric)
        FOR_NATIVE(r->dtype, qparams, &q, r, scale, q.symmetric ? NULL : zero_point)
    return qobs_succeed(error);
}

static float global_scale(const struct formula_params *params, qobs_dtype dtype, double amax)
{
    const double min_normal = dtype == QOBS_F16 ? 0x1p-14 : dtype == QOBS_F64 ? 0x1p-1022 : 0x1p-126;
    float g = 0;
    FOR_NATIVE(dtype, g = global_scale, amax, params->compressed_tensors.year_2025, min_normal)
    return g;
}

const struct formula_ops qobs_formula_compressed_tensors = {
    .dtypes = dtypes, .qparams = qparams, .global_scale = global_scale, .needs_data = true};
