/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* compressed-tensors' calculate_qparams (quantization/utils/helpers.py) for integers, in the dtype of the ranges. */
#include <math.h>

#include "convention/convention.h"
#include "native.h"

struct integers {
    bool symmetric;
    double least, greatest; /* of the quantized numbers */
    double eps;             /* stands for a scale of exactly 0: the dtype's epsilon */
    bool floor;             /* the 2025 forms instead: no scale below f32's epsilon, the zero point made with it */
    qobs_dtype zero_point_dtype;
    bool wide_zero_point; /* formed in f32 instead of the ranges' dtype */
};

static void put_integer(void *out, qobs_dtype dtype, size_t i, double value)
{
    /* NaN is upstream's cast of NaN on x86: 0 for the narrow types. */
    const int64_t k = isnan(value) ? 0 : (int64_t)value;
    switch (dtype) {
    case QOBS_I8:
        ((int8_t *)out)[i] = (int8_t)k;
        break;
    case QOBS_I16:
        ((int16_t *)out)[i] = (int16_t)k;
        break;
    default:
        ((int32_t *)out)[i] = (int32_t)k;
        break;
    }
}

#define NATIVE_BODY "convention/compressed_tensors.inl.h"
#include "native_each.inl.h"

void qobs_compressed_tensors_dtypes(const qobs_config *config, qobs_dtype dtype, qobs_dtype *scale, qobs_dtype *zero_point)
{
    *scale = dtype;
    *zero_point = config->zp_dtype ? (qobs_dtype)config->zp_dtype : config->num_bits <= 8 ? QOBS_I8 : QOBS_I16;
}

void qobs_compressed_tensors_qparams(const qobs_config *config, qobs_dtype dtype, size_t n, bool scalar, const void *min,
                                     const void *max, void *scale, void *zero_point)
{
    const double half = ldexp(1, config->num_bits - 1);
    struct integers q = {.symmetric = config->symmetric, .least = -half, .greatest = half - 1};
    q.floor = config->version != VERSION_CURRENT;
    qobs_dtype unused;
    qobs_compressed_tensors_dtypes(config, dtype, &unused, &q.zero_point_dtype);
    /* Upstream's bit_min is a 0-dimensional f32 tensor: it decides the type only where the ranges have no dimension either. */
    q.wide_zero_point = scalar && dtype != QOBS_F64;
    switch (dtype) {
    case QOBS_F32:
        q.eps = 0x1p-23;
        integers_f32(&q, n, min, max, scale, zero_point);
        break;
    case QOBS_BF16:
        q.eps = 0x1p-7;
        integers_bf16(&q, n, min, max, scale, zero_point);
        break;
    case QOBS_F16:
        q.eps = 0x1p-10;
        integers_f16(&q, n, min, max, scale, zero_point);
        break;
    default:
        q.eps = 0x1p-52;
        integers_f64(&q, n, min, max, scale, zero_point);
        break;
    }
}
