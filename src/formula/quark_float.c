/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's scales from a magnitude (ObserverBase.get_scale): fp8 and fp4 ranges, MX blocks and BFP blocks. */
#include "formula/shared.h"

#include <math.h>

#include "base/error.h"
#include "number/convert.h"
#include "number/exponent.h"
#include "number/grid.h"
#include "number/native.h"

enum { CHUNK = 256 };

/* ---- Rounding to the formats of scales --------------------------------------------------------------------------- */

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

#define NATIVE_BODY "formula/quark_float.inl.h"
#include "number/native_each.inl.h"

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

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
        form.dtype = qobs_quark_scale_dtype(params, native);
    else if (params->quark.format == SCALE_FORMAT_E4M3)
        form.dtype = qobs_quark_scale_dtype(params, QOBS_F32);
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
        /* Exponents are biased by 127. Those of infinity and of numbers below all normal ones are limited. */
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

static void scales(const struct form *f, size_t n, const double *amax, double *scale)
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
    for (size_t i = 0; f->params->quark.zero_is_eps && i < n; i++)
        scale[i] = scale[i] == 0 ? 0x1p-23 : scale[i];
}

/* ---- Entries ----------------------------------------------------------------------------------------------------- */

static void dtypes(const struct formula_params *params, const struct range_view *ranges, qobs_dtype *scale,
                   qobs_dtype *zero_point)
{
    *zero_point = form_of(params, ranges->dtype).dtype; /* zeros of the scale's dtype before scale_type is applied */
    *scale = ranges->global_scale ? QOBS_F32 : qobs_quark_scale_dtype(params, *zero_point);
}

static void bfp_dtypes(const struct formula_params *params, const struct range_view *ranges, qobs_dtype *scale,
                       qobs_dtype *zero_point)
{
    dtypes(params, ranges, scale, zero_point);
    *zero_point = QOBS_I32;
}

static int qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
                   qobs_error *error)
{
    struct form form = form_of(params, r->dtype);
    qobs_dtype scale_dtype, zero_point_dtype;
    dtypes(params, r, &scale_dtype, &zero_point_dtype);
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
            scales(&form, n, amax, s);
        qobs_store_doubles(scale, scale_dtype, first, n, s);
    }
    if (zero_point)
        memset(zero_point, 0, r->n * qobs_dtype_size(zero_point_dtype));
    return qobs_succeed(error);
}

static int bfp_qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
                       qobs_error *error)
{
    const int status = qparams(params, r, scale, NULL, error);
    if (status == QOBS_OK && zero_point)
        memset(zero_point, 0, r->n * sizeof(int32_t));
    return status;
}

const struct formula_ops qobs_formula_quark_float = {.dtypes = dtypes, .qparams = qparams, .block_scales = true};
const struct formula_ops qobs_formula_quark_bfp = {.dtypes = bfp_dtypes, .qparams = bfp_qparams};
