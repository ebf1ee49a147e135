/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The scales and zero points of AMD Quark's observers (quark/torch/quantization/observer/observer.py and utils.py,
 * 2026). */

#include "formula/shared.h"
#include "number/exponent.h"
#include "number/grid.h"
#include "number/native.h"

enum { CHUNK = 256 };

/* The dtype that scale_type names, or `otherwise`. */
static qobs_dtype scale_dtype_of(const struct formula_params *params, qobs_dtype otherwise)
{
    return params->quark.scale_dtype ? params->quark.scale_dtype : otherwise;
}

#define NATIVE_BODY "formula/quark.inl.h"
#include "number/native_each.inl.h"

/* ---- Integers: UniformScalingObserver.calculate_int_quant_params ------------------------------------------------ */

static struct qparam_dtypes integer_dtypes(const struct formula_params *params, const struct range_view *ranges)
{
    const bool fractional = params->mapping == MAPPING_FLOAT;
    /* The scale of 0-dimensional 16-bit tensors is promoted to f32 on the way. */
    const bool promoted = ranges->rank == RANK_SCALAR && !fractional && ranges->dtype != QOBS_F64;
    if (ranges->rank == RANK_EMPTY)
        return (struct qparam_dtypes){QOBS_F32, QOBS_I64};
    return (struct qparam_dtypes){scale_dtype_of(params, promoted ? QOBS_F32 : ranges->dtype),
                                  fractional ? ranges->dtype : QOBS_I32};
}

static int integer_qparams(const struct formula_params *params, const struct range_view *r, void *scale,
                           void *zero_point, qobs_error *error)
{
    if (r->rank == RANK_EMPTY)
        return put_no_data(scale, zero_point, error);
    const qobs_dtype scale_dtype = integer_dtypes(params, r).scale;
    size_t bad = 0;
    FOR_NATIVE(r->dtype, bad = first_invalid, r);
    if (bad < r->n)
        return qobs_fail(error, QOBS_ERROR_NO_RESULT, "min %g should not be above max %g",
                         qobs_element((const unsigned char *)r->min + bad * qobs_dtype_size(r->dtype), r->dtype),
                         qobs_element((const unsigned char *)r->max + bad * qobs_dtype_size(r->dtype), r->dtype));
    for (size_t first = 0; first < r->n; first += CHUNK) {
        const size_t n = r->n - first < CHUNK ? r->n - first : CHUNK;
        double s[CHUNK];
        FOR_NATIVE(r->dtype, integers, params, r, first, n, s, zero_point);
        if (scale)
            qobs_store_doubles(scale, scale_dtype, first, n, s);
    }
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_quark_integer = {.dtypes = integer_dtypes, .qparams = integer_qparams};

/* ---- LSQObserver ------------------------------------------------------------------------------------------------- */

/* Quark's LSQObserver in training mode: twice the mean magnitude over the root of the largest quantized number. */

static struct qparam_dtypes lsq_dtypes(const struct formula_params *params, const struct range_view *ranges)
{
    return (struct qparam_dtypes){scale_dtype_of(params, ranges->dtype), QOBS_I32};
}

static int lsq_qparam(const struct formula_params *params, qobs_dtype dtype, double min, double mean,
                      struct qparam *result, qobs_error *error)
{
    (void)dtype, (void)min, (void)error;
    result->scale = (double)(2 * (float)mean / (float)sqrt(params->quant_max));
    return QOBS_OK;
}

const struct formula_ops qobs_formula_quark_lsq = {.dtypes = lsq_dtypes, .qparam = lsq_qparam, .needs_data = true};

/* ---- TQTObserver ------------------------------------------------------------------------------------------------- */

/* Quark's TQTObserver: the power of two that takes the next power of two above the threshold to half of the numbers. */

static int tqt_qparam(const struct formula_params *params, qobs_dtype dtype, double min, double threshold,
                      struct qparam *result, qobs_error *error)
{
    const float log_threshold = (float)log2((double)(float)threshold);
    (void)dtype, (void)min;
    if (!isfinite(log_threshold))
        return qobs_fail(error, QOBS_ERROR_NO_RESULT, "scale: the logarithm of the threshold, %g, is no number",
                         (double)(float)threshold);
    result->scale = exp2((double)ceilf(log_threshold)) / (params->quant_max + 1);
    return QOBS_OK;
}

const struct formula_ops qobs_formula_quark_tqt = {
    .dtypes = qobs_fixed_dtypes, .qparam = tqt_qparam, .needs_data = true};

/* ---- Powers of two ----------------------------------------------------------------------------------------------- */

/* Quark's power-of-two scales (PerTensorPowOf2MinMaxObserver and PerChannelPowOf2MinMaxObserver) of one batch. The
 * scale of the range is rounded to a power of two, and the zero point is made anew for it, by way of an int32 that
 * truncates. The two classes round that second half in different dtypes: the one of tensors in f32, the one of channels
 * in the dtype of the range. */

/* False if the scale is not above 0, which upstream asserts for the range of a tensor. There a range of width 0 has
 * scale 1; for the range of a channel it has the smallest scale there is. */
static bool power_qparam(const struct formula_params *p, qobs_dtype dtype, double min, double max, double *scale,
                         int32_t *zero_point)
{
    const bool tensor = p->quark.tensor;
    const qobs_dtype second = tensor ? QOBS_F32 : dtype;
    const int64_t quant_min = (int64_t)p->quant_min;
    double a = min < 0 ? min : 0, b = max > 0 ? max : 0;
    if (p->mapping == MAPPING_SYMMETRIC) {
        b = -a > b ? -a : b;
        a = -b;
    }
    const double width = rounded(dtype, b - a);
    const double s = tensor && width == 0 ? 1 : rounded(dtype, width / operand(dtype, p->quant_max - p->quant_min));
    if (tensor && !(s > 0))
        return false;
    const double steps = rounded(dtype, a / s);
    const int32_t z = int32_of_double(rounded(dtype, operand(dtype, p->quant_min) - steps));
    const double limited = s < 0x1p-127 ? 0x1p-127 : s > 0x1p127 ? 0x1p127 : s;

    const double position = rint(-rounded(second, log2(rounded(second, limited))));
    const double power = rounded(second, ldexp(1, (int)-position));
    const double product = rounded(second, rounded(second, subtract_int32(quant_min, z)) * power);
    const double new_steps = rounded(second, (product < 0 ? product : 0) / power);
    *scale = power;
    *zero_point = int32_of_double(rint(rounded(second, p->quant_min - new_steps)));
    return true;
}

/* Range i's power of two and zero point; false if upstream raises. A range without data gives 1 and 0. */
static bool compute(const struct formula_params *p, const struct range_view *r, size_t i, double *scale,
                    int32_t *zero_point)
{
    const size_t size = qobs_dtype_size(r->dtype);
    const double min = qobs_element((const unsigned char *)r->min + i * size, r->dtype);
    const double max = qobs_element((const unsigned char *)r->max + i * size, r->dtype);
    *scale = 1;
    *zero_point = 0;
    return (r->rank != RANK_TENSOR && is_no_data(min, max)) ||
           (min <= max && power_qparam(p, r->dtype, min, max, scale, zero_point));
}

static struct qparam_dtypes power_of_2_dtypes(const struct formula_params *params, const struct range_view *ranges)
{
    (void)ranges;
    return (struct qparam_dtypes){QOBS_F32, params->quark.tensor ? QOBS_F32 : QOBS_I32};
}

static int power_of_2_qparams(const struct formula_params *params, const struct range_view *r, void *scale,
                              void *zero_point, qobs_error *error)
{
    const bool tensor = params->quark.tensor;
    /* Upstream puts both numbers into one list, in f32 or in the dtype of the scales. */
    const qobs_dtype list = tensor ? QOBS_F32 : scale_dtype_of(params, r->dtype);
    if (!tensor && r->dtype == QOBS_F16)
        return qobs_fail(error, QOBS_ERROR_NO_RESULT, "%s: upstream's limits of a scale do not fit F16", params->name);
    double s;
    int32_t z;
    bool all_127 = true;
    for (size_t i = 0; i < r->n; i++) {
        if (!compute(params, r, i, &s, &z))
            return qobs_fail(error, QOBS_ERROR_NO_RESULT, "range %zu: min should not be above max, nor the scale be 0",
                             i);
        all_127 &= z == 127;
    }
    for (size_t i = 0; i < r->n; i++) {
        compute(params, r, i, &s, &z);
        if (params->quark.zero_point_128 && z == 127 && (tensor || all_127))
            z = 128;
        if (scale)
            ((float *)scale)[i] = (float)qobs_round_to(scale_dtype_of(params, QOBS_F64), s);
        if (zero_point && tensor)
            ((float *)zero_point)[i] = (float)z;
        else if (zero_point)
            ((int32_t *)zero_point)[i] = int32_of_double(qobs_round_to(list, z));
    }
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_quark_power_of_2 = {.dtypes = power_of_2_dtypes, .qparams = power_of_2_qparams};

/* ---- Scales from a magnitude ------------------------------------------------------------------------------------- */

/* ObserverBase.get_scale: fp8 and fp4 ranges, MX blocks and BFP blocks. */

/* Rounds as the cast to float8_e4m3fn of torch 2.13 does: what is above 448 becomes 448. */
static float round_e4m3(float f) { return f > 448 ? 448 : grid_round_e4m3(f); }

/* Quark's e5m3: no sign, bias 15, multiples of 2^-17 below 2^-14, 114688 at most. Quark rounds NaN by its bits, to
 * 98304. */
static float round_e5m3(float f)
{
    if (f != f)
        return 98304;
    const float x = f < 0 ? 0 : f > 114688 ? 114688 : f;
    const uint32_t b = bits_of_float(x);
    return x < 0x1p-14f ? (x + 0x1p6f) - 0x1p6f : float_of_bits((b + 0x7ffff + (b >> 20 & 1)) & 0xfff00000);
}

/* The parameters of one call. */
struct form {
    const struct formula_params *params;
    qobs_dtype native; /* of the ranges */
    qobs_dtype dtype;  /* that the format computes in, before scale_type rounds */
    double global;     /* e4m3: the largest magnitude of the tensor */
};

static struct form form_of(const struct formula_params *params, qobs_dtype native)
{
    struct form form = {.params = params, .native = native, .dtype = native};
    if (params->quark.format == SCALE_FORMAT_FLOAT32)
        form.dtype = scale_dtype_of(params, native);
    else if (params->quark.format == SCALE_FORMAT_E4M3)
        form.dtype = scale_dtype_of(params, QOBS_F32);
    else if (params->quark.format == SCALE_FORMAT_E8M0 && params->quark.mode == SCALE_MODE_EVEN)
        form.dtype = QOBS_F32;
    return form;
}

/* The power of two nearest to amax in the digits of its elements (1.75 * 2^n rounds up for fp4), divided by 2^emax.
 * Zero counts as f32's smallest normal number, except in f16, which does not have it. */
static void even(const struct form *f, size_t n, const double *amax, double *scale)
{
    const uint32_t half = UINT32_C(1) << (22 - f->params->quark.mantissa_bits);
    const int32_t zero = f->native == QOBS_F16 ? 0 : 1, emax = f->params->quark.emax;
    for (size_t i = 0; i < n; i++) {
        const float a = (float)amax[i];
        /* Exponents are biased by 127. The exponents of infinity and of numbers below all normal ones are limited. */
        const int32_t power = a == 0 ? zero : (int32_t)((bits_of_float(a) + half) >> 23 & 255);
        const int32_t less = power - emax, limited = power == 255 ? 254 : power == 0 || less < 0 ? 0 : less;
        const float s = float_of_bits(limited == 0 ? 0x400000 : (uint32_t)limited << 23);
        scale[i] = (double)(a != a ? a : s);
    }
}

/* Local scales in e4m3 under a global scale, with which the largest of them is 448; in f32. Quark's 6 / global is, as
 * every number / tensor in torch, the reciprocal times the number: two roundings. */
static void two_levels(const struct form *f, size_t n, const double *amax, double *scale)
{
    const float quant_max = (float)f->params->quant_max;
    const float reciprocal = 1 / (float)f->global, global = 448 * (quant_max * reciprocal);
    for (size_t i = 0; i < n; i++)
        scale[i] = (double)(round_e4m3((float)amax[i] / quant_max * global) / global);
}

/* Scales of the first of two quantizers, realigned with the second one's scale `global`: multiples of it by e4m3
 * numbers, which the second one stores. All in f32 (realign_single_sequential_quantizer, post_calibration.py). */
static void realign(const struct form *f, size_t n, const double *amax, float global, double *scale)
{
    const float largest = global * (float)f->params->quant_max;
    for (size_t i = 0; i < n; i++) {
        const float block = round_e4m3((float)amax[i] / largest);
        scale[i] = (double)((block == 0 ? 1 : block) * global);
    }
}

/* amax / quant_max in the dtype; 2^-23 instead of 0. */
static void quotients(qobs_dtype dtype, size_t n, const double *amax, double quant_max, double *scale)
{
    for (size_t i = 0; i < n; i++) {
        const double s = rounded(dtype, rounded(dtype, amax[i]) / operand(dtype, quant_max));
        scale[i] = s == 0 ? 0x1p-23 : s;
    }
}

static void round_all(qobs_dtype dtype, size_t n, double *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = rounded(dtype, x[i]);
}

static void float_scales(const struct form *f, size_t n, const double *amax, double *scale)
{
    const double quant_max = f->params->quant_max;
    switch (f->params->quark.format) {
    case SCALE_FORMAT_E8M0:
        if (f->params->quark.mode == SCALE_MODE_EVEN)
            even(f, n, amax, scale);
        else
            FOR_NATIVE(f->native, powers, n, amax, f->params->quark.mode == SCALE_MODE_CEIL, f->params->quark.emax,
                       scale)
        break;
    case SCALE_FORMAT_E4M3:
        two_levels(f, n, amax, scale);
        round_all(f->dtype, n, scale);
        break;
    case SCALE_FORMAT_E5M3:
        quotients(f->native, n, amax, quant_max, scale);
        for (size_t i = 0; i < n; i++)
            scale[i] = (double)round_e5m3((float)scale[i]);
        round_all(f->native, n, scale);
        break;
    default:
        quotients(f->dtype, n, amax, quant_max, scale);
        break;
    }
    for (size_t i = 0; f->params->quark.zero_is_eps && i < n; i++)
        scale[i] = scale[i] == 0 ? 0x1p-23 : scale[i];
}

static struct qparam_dtypes float_dtypes(const struct formula_params *params, const struct range_view *ranges)
{
    const qobs_dtype dtype = form_of(params, ranges->dtype).dtype; /* zeros have it before scale_type is applied */
    return (struct qparam_dtypes){ranges->global_scale ? QOBS_F32 : scale_dtype_of(params, dtype),
                                  params->quark.integer_zero_point ? QOBS_I32 : dtype};
}

static int float_qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
                         qobs_error *error)
{
    struct form form = form_of(params, r->dtype);
    const struct qparam_dtypes dtypes = float_dtypes(params, r);
    if (params->quark.format == SCALE_FORMAT_E5M3 && r->dtype == QOBS_F64)
        return qobs_fail(error, QOBS_ERROR_NO_RESULT, "scale_format: e5m3 takes ranges of F32, BF16 and F16, not F64");
    if (params->quark.format == SCALE_FORMAT_E4M3 && r->rank == RANK_TENSOR)
        form.global = qobs_amax_of_ranges(r);
    const size_t step = r->rank == RANK_TENSOR ? CHUNK : 1; /* 0-dimensional tensors have own global scales */
    for (size_t first = 0; scale && first < r->n; first += step) {
        const size_t n = r->n - first < step ? r->n - first : step;
        double amax[CHUNK], s[CHUNK];
        FOR_NATIVE(r->dtype, magnitudes, first, n, r->min, r->max, amax)
        if (r->rank != RANK_TENSOR)
            form.global = amax[0];
        if (r->global_scale)
            realign(&form, n, amax, *r->global_scale, s);
        else
            float_scales(&form, n, amax, s);
        qobs_store_doubles(scale, dtypes.scale, first, n, s);
    }
    if (zero_point)
        memset(zero_point, 0, r->n * qobs_dtype_size(dtypes.zero_point));
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_quark_float = {
    .dtypes = float_dtypes, .qparams = float_qparams, .block_scales = true};
const struct formula_ops qobs_formula_quark_bfp = {.dtypes = float_dtypes, .qparams = float_qparams};
