/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads scales and zero points of any dtype in the arithmetic upstream uses for the dtype of x. */
#include "quantize/qparam_view.h"

#include "base/error.h"
#include "number/format.h"
#include "number/native.h"

/* n numbers of any dtype from `first` on, `stride` elements apart, as floats. Likely dtypes have their own loop. */
static void read_floats(const void *array, qobs_dtype dtype, int64_t first, int64_t stride, int64_t n, float *out)
{
    const unsigned char *p = (const unsigned char *)array + first * (int64_t)qobs_dtype_size(dtype);
    const qobs_format *e4m3;
    uint16_t half;
    int8_t byte;
    switch (dtype) {
    case QOBS_F32:
        for (int64_t i = 0; i < n; i++)
            memcpy(&out[i], p + 4 * i * stride, 4);
        break;
    case QOBS_BF16:
        for (int64_t i = 0; i < n; i++) {
            memcpy(&half, p + 2 * i * stride, 2);
            out[i] = float_of_bf16(half);
        }
        break;
    case QOBS_I8:
        for (int64_t i = 0; i < n; i++) {
            memcpy(&byte, p + i * stride, 1);
            out[i] = (float)byte;
        }
        break;
    case QOBS_F8_E4M3:
        e4m3 = qobs_format_find("fp8_e4m3");
        for (int64_t i = 0; i < n; i++)
            out[i] = qobs_format_decode(e4m3, p[i * stride]);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)qobs_qparam_at(array, dtype, first + i * stride);
        break;
    }
}

/* Bits instead of comparisons of floats, so that the loop becomes vectors. */
static void clear_payloads(float *number, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = bits_of_float(number[i]), nan = -(uint32_t)((bits & 0x7fffffff) > 0x7f800000);
        number[i] = float_of_bits((bits & ~nan) | (0x7fc00000 & nan));
    }
}

/* Bits, as above. */
static void multiply_scales(float *scale, int64_t n, float by, float zero_scale)
{
    const uint32_t replacement = bits_of_float(zero_scale);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = bits_of_float(scale[i] * by), zero = -(uint32_t)(bits << 1 == 0);
        scale[i] = float_of_bits((bits & ~zero) | (replacement & zero));
    }
}

static void read_single(const struct qparam_source *q, int64_t first, int64_t stride, int64_t n,
                        const struct qparam_arrays *to)
{
    float *scale = to->scale, *zero_point_add = to->zero_point_add, *zero_point_sub = to->zero_point_sub;
    read_floats(q->scale, q->scale_dtype, first, stride, n, scale);
    if (q->zero_scale != 0) {
        multiply_scales(scale, n, q->global_scale ? 1 / *q->global_scale : 1, q->zero_scale);
    } else if (q->global_scale) {
        const float global_scale = *q->global_scale; /* the compiler cannot know that the loop leaves it */
        for (int64_t i = 0; i < n; i++)
            scale[i] /= global_scale;
    }
    clear_payloads(scale, n);
    if (!q->zero_point)
        return;
    /* Upstream converts a zero point to the dtype of x when it adds it and to that of scale when it subtracts it. */
    read_floats(q->zero_point, q->zero_point_dtype, first, stride, n, zero_point_sub);
    clear_payloads(zero_point_sub, n);
    for (int64_t i = 0; i < n; i++)
        zero_point_add[i] = q->x_dtype == QOBS_BF16  ? load_bf16(store_bf16(zero_point_sub[i]))
                            : q->x_dtype == QOBS_F16 ? load_f16(store_f16(zero_point_sub[i]))
                                                     : zero_point_sub[i];
    if (!q->in_float)
        memcpy(zero_point_sub, zero_point_add, (size_t)n * sizeof *zero_point_sub);
}

static void read_double(const struct qparam_source *q, int64_t first, int64_t stride, int64_t n,
                        const struct qparam_arrays *to)
{
    double *scale = to->scale, *zero_point_add = to->zero_point_add, *zero_point_sub = to->zero_point_sub;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = first + i * stride;
        const double s = qobs_qparam_at(q->scale, q->scale_dtype, at),
                     divided = q->global_scale ? s / *q->global_scale : s;
        scale[i] = q->in_float ? (double)(float)divided : divided;
        if (q->zero_point) {
            zero_point_add[i] = qobs_qparam_at(q->zero_point, q->zero_point_dtype, at);
            zero_point_sub[i] = q->in_float ? (double)(float)zero_point_add[i] : zero_point_add[i];
        }
    }
}

void qobs_read_qparams(const struct qparam_source *q, int64_t first, int64_t stride, int64_t n,
                       const struct qparam_arrays *to)
{
    (q->x_dtype == QOBS_F64 ? read_double : read_single)(q, first, stride, n, to);
}

void qobs_no_zero_points(const struct qparam_source *q, int64_t n, struct qparam_panel *panel)
{
    for (int64_t i = 0; i < n; i++)
        if (q->x_dtype == QOBS_F64) {
            panel->zero_point_add.wide[i] = q->positive_zero ? 0 : -0.0;
            panel->zero_point_sub.wide[i] = 0;
        } else {
            panel->zero_point_add.single[i] = q->positive_zero ? 0 : -0.0f;
            panel->zero_point_sub.single[i] = 0;
        }
}

int qobs_check_torch_zero_points(const struct quantizer *q, const void *zero_points, qobs_dtype dtype, int64_t n,
                                 qobs_error *error)
{
    for (int64_t i = 0; i < n; i++) {
        const double z = qobs_qparam_at(zero_points, dtype, i);
        if (!(z >= q->quant_min && z <= q->quant_max) || z != floor(z))
            return qobs_invalid(error, "zero_point: element %lld is %g, allowed are the integers %.0f to %.0f",
                                (long long)i, z, q->quant_min, q->quant_max);
    }
    return QOBS_OK;
}
