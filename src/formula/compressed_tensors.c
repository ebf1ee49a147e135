/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* compressed-tensors' calculate_qparams and generate_gparam (quantization/utils/helpers.py, mxfp_utils.py), in the dtype of the
 * ranges. */
#include <math.h>

#include "formula/formula.h"
#include "number/grid.h"
#include "number/native.h"

struct numbers {
    bool symmetric;
    double quant_min, quant_max; /* of the quantized numbers */
    bool mx;
    int mx_offset;          /* exponent of the largest quantized number */
    enum scale_dtype scale_dtype;
    double eps;             /* stands for a scale of exactly 0 */
    bool floor;             /* the 2025 forms instead: no scale below f32's epsilon, the zero point made with it */
    bool floor_e4m3;        /* and with them, e2m1 under a global scale: e4m3 scales, 0.125 for 0 */
    qobs_dtype zero_point_dtype;
    const qobs_format *e4m3; /* which zero points may be in */
    bool wide_zero_point;   /* formed in f32 instead of the ranges' dtype */
    const float *global_scale;
};

/* NaN stays, as in torch.clamp. */
static inline double clamp(double x, double quant_min, double quant_max)
{
    return x < quant_min ? quant_min : x > quant_max ? quant_max : x;
}

static void put_zero_point(const struct numbers *q, void *out, size_t i, double value)
{
    /* NaN as an integer is upstream's cast of NaN on x86: 0 for the narrow types. */
    const int64_t k = isnan(value) ? 0 : (int64_t)rint(clamp(value, INT32_MIN, INT32_MAX));
    switch (q->zero_point_dtype) {
    case QOBS_I8:
        ((int8_t *)out)[i] = (int8_t)clamp((double)k, INT8_MIN, INT8_MAX);
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

/* A scale in the dtype it will be stored in, as a number. Exponents (MX) are whole already. */
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

#define NATIVE_BODY "formula/compressed_tensors.inl.h"
#include "number/native_each.inl.h"

void qobs_compressed_tensors_dtypes(const qobs_config *config, qobs_dtype dtype, qobs_dtype *scale, qobs_dtype *zero_point)
{
    *scale = dtype;
    *zero_point = config->zp_dtype               ? (qobs_dtype)config->zp_dtype
                  : config->type == TYPE_FLOAT ? QOBS_F8_E4M3
                  : config->num_bits <= 8      ? QOBS_I8
                                               : QOBS_I16;
}

static double epsilon(const qobs_config *config, qobs_dtype native)
{
    static const double of_scale[] = {
        [SCALE_F32] = 0x1p-23, [SCALE_BF16] = 0x1p-7, [SCALE_F16] = 0x1p-10, [SCALE_E4M3] = 0.125, [SCALE_U8] = 1};
    if (config->scale_dtype != SCALE_NATIVE)
        return of_scale[config->scale_dtype];
    return native == QOBS_F32 ? 0x1p-23 : native == QOBS_BF16 ? 0x1p-7 : native == QOBS_F16 ? 0x1p-10 : 0x1p-52;
}

void qobs_compressed_tensors_qparams(const qobs_config *config, const struct range_view *r, void *scale, void *zero_point)
{
    const double half = ldexp(1, config->num_bits - 1);
    const bool integer = config->type == TYPE_INT, old = config->version != VERSION_CURRENT;
    const double most = integer ? half - 1 : config->num_bits == 4 ? 6 : 448;
    struct numbers q = {
        .symmetric = config->symmetric,
        .quant_min = integer ? -half : -most,
        .quant_max = most,
        .mx = qobs_config_is_mx(config),
        .mx_offset = config->num_bits == 4 ? 2 : 8,
        .scale_dtype = old ? SCALE_NATIVE : (enum scale_dtype)config->scale_dtype,
        .eps = epsilon(config, r->global_scale ? QOBS_F32 : r->dtype),
        .floor_e4m3 = old && !integer && config->num_bits == 4 && r->global_scale,
        /* Upstream's bit_min is a 0-dimensional f32 tensor: it decides the type only where the ranges have no dimension. */
        .wide_zero_point = r->rank == RANK_SCALAR && r->dtype != QOBS_F64,
        .global_scale = old && !(!integer && config->num_bits == 4) ? NULL : r->global_scale,
    };
    q.floor = old && !q.floor_e4m3;
    q.e4m3 = qobs_format_find("fp8_e4m3");
    qobs_dtype unused;
    qobs_compressed_tensors_dtypes(config, r->dtype, &unused, &q.zero_point_dtype);
    switch (r->dtype) {
    case QOBS_F32:
        qparams_f32(&q, r->n, r->min, r->max, scale, zero_point);
        break;
    case QOBS_BF16:
        qparams_bf16(&q, r->n, r->min, r->max, scale, zero_point);
        break;
    case QOBS_F16:
        qparams_f16(&q, r->n, r->min, r->max, scale, zero_point);
        break;
    default:
        qparams_f64(&q, r->n, r->min, r->max, scale, zero_point);
        break;
    }
}

double qobs_compressed_tensors_amax(const struct range_view *r)
{
    switch (r->dtype) {
    case QOBS_F32:
        return largest_f32(r->n, r->min, r->max);
    case QOBS_BF16:
        return largest_bf16(r->n, r->min, r->max);
    case QOBS_F16:
        return largest_f16(r->n, r->min, r->max);
    default:
        return largest_f64(r->n, r->min, r->max);
    }
}

float qobs_compressed_tensors_global_scale(const qobs_config *config, qobs_dtype dtype, double amax)
{
    const bool old = config->version != VERSION_CURRENT;
    switch (dtype) {
    case QOBS_F32:
        return global_scale_f32(amax, old, 0x1p-126);
    case QOBS_BF16:
        return global_scale_bf16(amax, old, 0x1p-126);
    case QOBS_F16:
        return global_scale_f16(amax, old, 0x1p-14);
    default:
        return global_scale_f64(amax, old, 0x1p-1022);
    }
}
