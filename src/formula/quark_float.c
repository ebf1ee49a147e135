/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's scales of a magnitude (ObserverBase.get_scale): fp8 and fp4 ranges, MX blocks by scale format, and BFP blocks. */
#include <math.h>

#include "formula/quark.h"
#include "base/error.h"
#include "number/convert.h"
#include "number/grid.h"
#include "number/native.h"

enum { CHUNK = 256, BFP_EMAX = 6 };

/* ---- Rounding to the formats of scales -----------------------------------------------------------------------------------
 */

/* As torch's cast to float8_e4m3fn: what would round beyond 448 is NaN. */
static float round_e4m3(float f)
{
    return fabsf(f) > 464 ? NAN : grid_round_e4m3(f);
}

/* Quark's e5m3: no sign, bias 15, multiples of 2^-17 below 2^-14, 114688 at most. NaN goes by its bits and comes out as
 * 98304. */
static float round_e5m3(float f)
{
    if (f != f)
        return 98304;
    const float x = f < 0 ? 0 : f > 114688 ? 114688 : f;
    const uint32_t b = bits_of_float(x);
    return x < 0x1p-14f ? (x + 0x1p6f) - 0x1p6f : float_of_bits((b + 0x7ffff + (b >> 20 & 1)) & 0xfff00000);
}

/* Of whole exponents, infinities and NaN. */
static double power_of_2(double exponent)
{
    if (exponent >= -1022 && exponent <= 1023) {
        const uint64_t bits = (uint64_t)((int64_t)exponent + 1023) << 52;
        double power;
        memcpy(&power, &bits, sizeof power);
        return power;
    }
    return exponent < -1074 ? 0 : exponent > 1023 ? INFINITY : isnan(exponent) ? exponent : ldexp(1, (int)exponent);
}

/* Is log2(amax), also rounded to float, not whole? Then its whole part is that of the exponent. */
static inline bool exponent_tells(double amax, int *exponent)
{
    uint64_t bits;
    memcpy(&bits, &amax, sizeof bits);
    const uint64_t biased = bits >> 52, first_digits = bits >> 36 & 0xffff;
    *exponent = (int)biased - 1023;
    return biased > 0 && biased < 2047 && first_digits != 0 && first_digits != 0xffff;
}

#define NATIVE_BODY "formula/quark_float.inl.h"
#include "number/native_each.inl.h"

/* ---- Formats ---------------------------------------------------------------------------------------------------------- */

struct form {
    enum scale_format format;
    enum scale_mode mode;               /* of e8m0 */
    const struct quark_number *number;  /* what is quantized to */
    const struct quark_number *element; /* for e8m0: mx_element_dtype where that is set */
    qobs_dtype native;                  /* of the ranges */
    qobs_dtype dtype;                   /* that the format computes in, before scale_type rounds */
    double global;                      /* e4m3: the largest magnitude of the tensor */
    bool zero_is_eps;                   /* a scale that is 0 at the end becomes eps */
};

/* An MX observer goes by scale_format, one of ranges only with fp4 elements, one of BFP blocks not at all. */
static struct form form_of(const qobs_config *config, qobs_dtype native)
{
    static const struct quark_number bfp = {.emax = BFP_EMAX};
    if (config->preset->formula == FORMULA_QUARK_BFP)
        return (struct form){
            .format = SCALE_FORMAT_E8M0, .mode = SCALE_MODE_FLOOR, .element = &bfp, .native = native, .dtype = native};
    if (config->preset->statistic == STATISTIC_ABSMAX_STEPS)
        return (struct form){.format = SCALE_FORMAT_E8M0,
                             .mode = SCALE_MODE_CEIL,
                             .element = qobs_quark_number(config->mx_element_dtype ? config->mx_element_dtype : config->quark_dtype),
                             .native = native,
                             .dtype = native};
    const bool block = config->preset->formula == FORMULA_QUARK_MX;
    const bool by_format = block || config->quark_dtype == QUARK_FP4;
    struct form form = {
        .format = by_format ? (enum scale_format)config->scale_format : SCALE_FORMAT_FLOAT32,
        .mode = config->scale_calculation_mode == SCALE_MODE_NONE ? SCALE_MODE_EVEN
                                                                  : (enum scale_mode)config->scale_calculation_mode,
        .number = qobs_quark_number(config->quark_dtype),
        .element = qobs_quark_number(config->mx_element_dtype ? config->mx_element_dtype : config->quark_dtype),
        .native = native,
        .dtype = native,
        .zero_is_eps = by_format && !block,
    };
    if (form.format == SCALE_FORMAT_FLOAT32)
        form.dtype = qobs_quark_scale_dtype(config, native);
    else if (form.format == SCALE_FORMAT_E4M3)
        form.dtype = qobs_quark_scale_dtype(config, QOBS_F32);
    else if (form.format == SCALE_FORMAT_E8M0 && form.mode == SCALE_MODE_EVEN)
        form.dtype = QOBS_F32;
    return form;
}

/* The power of two nearest to amax in its elements' digits (1.75 * 2^n rounds up for fp4), its exponent less that of the
 * largest element. Zero counts as f32's smallest normal number, which f16 does not have. */
static void even(const struct form *f, size_t n, const double *amax, double *scale)
{
    const uint32_t half = UINT32_C(1) << (22 - f->element->mantissa_bits);
    const int32_t zero = f->native == QOBS_F16 ? 0 : 1, emax = f->element->emax;
    for (size_t i = 0; i < n; i++) {
        const float a = (float)amax[i];
        /* Exponents biased by 127; that of infinity and that of what is below all normal numbers end at the limits. */
        const int32_t power = a == 0 ? zero : (int32_t)((bits_of_float(a) + half) >> 23 & 255);
        const int32_t less = power - emax, limited = power == 255 ? 254 : power == 0 || less < 0 ? 0 : less;
        const float s = float_of_bits(limited == 0 ? 0x400000 : (uint32_t)limited << 23);
        scale[i] = (double)(a != a ? a : s);
    }
}

/* Local scales in e4m3 under one of the whole tensor, which makes the largest of them 448; in f32. */
static void two_levels(const struct form *f, size_t n, const double *amax, double *scale)
{
    const float quant_max = (float)f->number->quant_max;
    for (size_t i = 0; i < n; i++) {
        const float global = 448 * (quant_max / (float)f->global);
        scale[i] = (double)(round_e4m3((float)amax[i] / quant_max * global) / global);
    }
}

static void scales(const struct form *f, size_t n, const double *amax, double *scale)
{
    const double quant_max = f->number ? f->number->quant_max : 0;
    switch (f->format) {
    case SCALE_FORMAT_E8M0:
        if (f->mode == SCALE_MODE_EVEN)
            even(f, n, amax, scale);
        else
            FOR_NATIVE(f->native, powers, n, amax, f->mode == SCALE_MODE_CEIL, f->element->emax, scale)
        break;
    case SCALE_FORMAT_E4M3:
        two_levels(f, n, amax, scale);
        FOR_NATIVE(f->dtype, round_all, n, scale)
        break;
    case SCALE_FORMAT_E5M3:
        FOR_NATIVE(f->native, quotients, n, amax, quant_max, scale)
        for (size_t i = 0; i < n; i++)
            scale[i] = (double)round_e5m3((float)scale[i]);
        FOR_NATIVE(f->native, round_all, n, scale)
        break;
    default:
        FOR_NATIVE(f->dtype, quotients, n, amax, quant_max, scale)
        break;
    }
    for (size_t i = 0; f->zero_is_eps && i < n; i++)
        scale[i] = scale[i] == 0 ? 0x1p-23 : scale[i];
}

/* ---- Entries ---------------------------------------------------------------------------------------------------------- */

void qobs_quark_amax_dtypes(const qobs_config *config, const struct range_view *ranges, qobs_dtype *scale,
                            qobs_dtype *zero_point)
{
    *zero_point = form_of(config, ranges->dtype).dtype; /* zeros like the scale, made before scale_type is applied */
    *scale = config->preset->statistic == STATISTIC_ABSMAX_STEPS ? *zero_point : qobs_quark_scale_dtype(config, *zero_point);
    if (config->preset->formula == FORMULA_QUARK_BFP)
        *zero_point = QOBS_I32;
}

static double largest(const struct range_view *r)
{
    double global = 0;
    for (size_t first = 0; first < r->n; first += CHUNK) {
        const size_t n = r->n - first < CHUNK ? r->n - first : CHUNK;
        double amax[CHUNK];
        FOR_NATIVE(r->dtype, magnitudes, first, n, r->min, r->max, amax)
        for (size_t i = 0; i < n; i++)
            global = amax[i] > global || amax[i] != amax[i] ? amax[i] : global;
        if (global != global)
            break;
    }
    return global;
}

int qobs_quark_amax_qparams(const qobs_config *config, const struct range_view *r, void *scale, void *zero_point,
                            qobs_error *error)
{
    struct form form = form_of(config, r->dtype);
    qobs_dtype scale_dtype, zero_point_dtype;
    qobs_quark_amax_dtypes(config, r, &scale_dtype, &zero_point_dtype);
    if (form.format == SCALE_FORMAT_E5M3 && r->dtype == QOBS_F64)
        return qobs_fail(error, QOBS_ERROR_NO_RESULT, "scale_format: e5m3 takes ranges of F32, BF16 and F16, not F64");
    if (form.format == SCALE_FORMAT_E4M3 && r->rank == RANK_TENSOR)
        form.global = largest(r);
    const size_t most = r->rank == RANK_TENSOR ? CHUNK : 1; /* a 0-dimensional tensor is a tensor of its own */
    for (size_t first = 0; scale && first < r->n; first += most) {
        const size_t n = r->n - first < most ? r->n - first : most;
        double amax[CHUNK], s[CHUNK];
        FOR_NATIVE(r->dtype, magnitudes, first, n, r->min, r->max, amax)
        if (r->rank != RANK_TENSOR)
            form.global = amax[0];
        scales(&form, n, amax, s);
        FOR_NATIVE(scale_dtype, put, first, n, s, scale)
    }
    if (zero_point)
        memset(zero_point, 0, r->n * qobs_dtype_size(zero_point_dtype));
    return qobs_succeed(error);
}

double qobs_quark_ceil_exponent(const qobs_config *config, qobs_dtype dtype, double amax)
{
    const struct form form = form_of(config, dtype);
    double exponent = 0;
    FOR_NATIVE(dtype, exponent = whole_log, amax, true)
    return exponent - form.element->emax;
}

/* ---- BFP -------------------------------------------------------------------------------------------------------------- */

void qobs_quark_update_bfp(const qobs_config *config, qobs_dtype dtype, size_t n, void *min, void *max, const void *lo,
                           const void *hi, bool fresh)
{
    const qobs_dtype scale_dtype = qobs_quark_scale_dtype(config, dtype);
    FOR_NATIVE(dtype, bfp, scale_dtype, n, min, max, lo, hi, fresh)
}
