/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include <math.h>
#include <string.h>

#include "config/dtypes.h"
#include "config/stages.h"
#include "base/error.h"
#include "number/convert.h"
#include "number/format.h"
#include "range/range.h"
#include "base/tensor.h"

enum { CHUNK = 256, LANES = 16 };

float qobs_bin_centre(const struct histogram_view *h, size_t bin) { return (h->edges[bin + 1] + h->edges[bin]) / 2; }

size_t qobs_squared_error_workspace(size_t bins) { return 2 * bins; }

struct squared_error qobs_squared_error_prepare(const struct histogram_view *h, float *workspace)
{
    float *centre = workspace, *count = workspace + h->bins;
    size_t used = 0;
    for (size_t i = 0; i < h->bins; i++)
        if (h->counts[i] != 0) {
            centre[used] = qobs_bin_centre(h, i);
            count[used++] = (float)h->counts[i];
        }
    return (struct squared_error){.bins = h->bins, .used = used, .centre = centre, .count = count};
}

/* ---- Quantizing centres ----------------------------------------------------------------------------------------------- */

/* For magnitudes below 2^22. */
static inline float round_to_integer(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

static inline float clamp(float x, float quant_min, float quant_max) { return x < quant_min ? quant_min : x > quant_max ? quant_max : x; }

static void modelopt_integer(const struct centre_quantizer *q, float amax, size_t n, const float *c, float *out)
{
    const float quant_min = (float)q->quant_min, quant_max = (float)q->quant_max;
    const bool nothing = amax < 0x1p-24f;
    const float scale = nothing ? 1 : quant_max / amax;
    for (size_t i = 0; i < n; i++)
        out[i] = nothing ? 0 : round_to_integer(clamp(c[i] * scale, quant_min, quant_max)) / scale;
}

static void modelopt_e4m3(const struct centre_quantizer *q, float amax, size_t n, const float *c, float *out)
{
    const float scale = 1 / (amax <= 0x1p-24f ? 1 : amax) * 448, inverse = 1 / scale;
    for (size_t i = 0; i < n; i++)
        out[i] = clamp(c[i] * scale, -448, 448);
    qobs_format_round_array(q->format, n, out, out, true);
    for (size_t i = 0; i < n; i++)
        out[i] *= inverse;
}

static void quark_float(const struct centre_quantizer *q, float amax, size_t n, const float *c, float *out)
{
    const float quant_max = (float)q->quant_max, scale = amax / quant_max;
    for (size_t i = 0; i < n; i++)
        out[i] = clamp(c[i] / scale, -quant_max, quant_max);
    qobs_format_round_array(q->format, n, out, out, true);
    for (size_t i = 0; i < n; i++)
        out[i] *= scale;
}

/* Clamping before rounding is the same, the limits being integers. */
static void torch_integer(const struct centre_quantizer *q, float scale, float zero_point, size_t n, const float *c,
                          float *out)
{
    const float quant_min = (float)q->quant_min - zero_point, quant_max = (float)q->quant_max - zero_point, inverse = 1 / scale;
    for (size_t i = 0; i < n; i++)
        out[i] = round_to_integer(clamp(c[i] * inverse, quant_min, quant_max)) * scale;
}

/* Scale and zero point of the range from 0 to amax, as floats; a zero point with a fraction loses it. */
static int torch_qparams(const struct centre_quantizer *q, float amax, float *scale, float *zero_point, qobs_error *error)
{
    const float zero = 0;
    const struct range_view range = {.dtype = QOBS_F32, .n = 1, .rank = RANK_SCALAR, .min = &zero, .max = &amax};
    unsigned char s[8], z[8];
    qobs_dtype scale_dtype, zero_point_dtype;
    qobs_formula_dtypes(&q->formula, &range, &scale_dtype, &zero_point_dtype);
    const int status = qobs_formula_qparams(&q->formula, &range, s, z, error);
    if (status != QOBS_OK)
        return status;
    int32_t whole;
    memcpy(&whole, z, sizeof whole);
    *scale = (float)qobs_element(s, scale_dtype);
    *zero_point = zero_point_dtype == QOBS_I32 ? (float)whole : truncf((float)qobs_element(z, zero_point_dtype));
    return QOBS_OK;
}

/* ---- Errors ----------------------------------------------------------------------------------------------------------- */

int qobs_squared_error(const struct squared_error *e, const struct centre_quantizer *q, float amax, double *mean,
                       qobs_error *error)
{
    float scale = 0, zero_point = 0, quantized[CHUNK];
    double lane[LANES] = {0}, sum = 0;
    if (q->way == CENTRES_TORCH) {
        const int status = torch_qparams(q, amax, &scale, &zero_point, error);
        if (status != QOBS_OK)
            return status;
    }
    for (size_t first = 0; first < e->used; first += CHUNK) {
        const size_t n = e->used - first < CHUNK ? e->used - first : CHUNK;
        const float *c = e->centre + first, *count = e->count + first;
        switch (q->way) {
        case CENTRES_MODELOPT_INTEGER:
            modelopt_integer(q, amax, n, c, quantized);
            break;
        case CENTRES_MODELOPT_E4M3:
            modelopt_e4m3(q, amax, n, c, quantized);
            break;
        case CENTRES_QUARK_FLOAT:
            quark_float(q, amax, n, c, quantized);
            break;
        case CENTRES_TORCH:
            torch_integer(q, scale, zero_point, n, c, quantized);
            break;
        }
        for (size_t i = 0; i < n; i++) {
            const float off = quantized[i] - c[i];
            lane[i % LANES] += (double)(off * off * count[i]);
        }
    }
    for (int i = 0; i < LANES; i++)
        sum += lane[i];
    *mean = sum / (double)e->bins;
    return QOBS_OK;
}

int qobs_squared_error_find(const struct squared_error *e, const struct histogram_view *h, const struct centre_quantizer *q,
                            size_t first, size_t stride, size_t *bin, qobs_error *error)
{
    double quant_min = INFINITY;
    *bin = first;
    for (size_t i = first; i < h->bins; i += stride) {
        double mean = 0;
        const int status = qobs_squared_error(e, q, qobs_bin_centre(h, i), &mean, error);
        if (status != QOBS_OK)
            return status;
        if (mean < quant_min || isnan(mean)) {
            *bin = i;
            quant_min = mean;
        }
        if (isnan(mean))
            break;
    }
    return QOBS_OK;
}

/* ---- Which quantizer ---------------------------------------------------------------------------------------------- */

int qobs_centre_quantizer(const qobs_config *config, struct centre_quantizer *q, qobs_error *error)
{
    if (config->preset->family == FAMILY_MODELOPT && config->num_bits == NUM_BITS_E4M3) {
        *q = (struct centre_quantizer){.way = CENTRES_MODELOPT_E4M3, .format = qobs_format_find("fp8_e4m3")};
        return QOBS_OK;
    }
    if (config->preset->family == FAMILY_MODELOPT) {
        const double bound = (double)((INT64_C(1) << (config->num_bits - 1 + config->is_unsigned)) - 1);
        *q = (struct centre_quantizer){
            .way = CENTRES_MODELOPT_INTEGER, .quant_min = config->is_unsigned ? 0 : -bound, .quant_max = bound};
        return QOBS_OK;
    }
    const struct quark_number number = qobs_quark_number(config->quark_dtype);
    *q = (struct centre_quantizer){
        .way = CENTRES_TORCH, .quant_min = number.quant_min, .quant_max = number.quant_max};
    qobs_resolve_formula(config, &q->formula);
    switch (config->quark_dtype) {
    case QUARK_INT4:
    case QUARK_UINT4:
    case QUARK_INT8:
    case QUARK_UINT8:
        return QOBS_OK;
    case QUARK_FP8_E4M3:
    case QUARK_FP8_E5M2:
        q->way = CENTRES_QUARK_FLOAT;
        q->format = qobs_format_find(config->quark_dtype == QUARK_FP8_E4M3 ? "fp8_e4m3" : "fp8_e5m2");
        return QOBS_OK;
    default:
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "dtype: is %s, squared errors take int4, uint4, int8, uint8, fp8_e4m3, fp8_e5m2",
                         qobs_quark_dtype_text(config->quark_dtype));
    }
}

size_t qobs_range_workspace(size_t bins)
{
    const size_t squared = (qobs_squared_error_workspace(bins) * sizeof(float) + sizeof(double) - 1) / sizeof(double);
    return squared > qobs_entropy_workspace(bins) ? squared : qobs_entropy_workspace(bins);
}

int qobs_amax_by_mse(const qobs_config *config, const struct histogram_view *h, int64_t stride, int64_t start_bin,
                     double *workspace, float *amax, qobs_error *error)
{
    const bool clamped = config->preset->family == FAMILY_QUARK;
    struct centre_quantizer q;
    size_t bin;
    if (stride < 1)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "stride: is %lld, must be above 0", (long long)stride);
    if (start_bin < 0 || (!clamped && (uint64_t)start_bin >= h->bins))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "start_bin: is %lld, allowed are 0 to %zu",
                         (long long)start_bin, h->bins - 1);
    int status = qobs_centre_quantizer(config, &q, error);
    if (status != QOBS_OK)
        return status;
    const struct squared_error e = qobs_squared_error_prepare(h, (float *)(void *)workspace);
    const size_t first = (uint64_t)start_bin < h->bins ? (size_t)start_bin : h->bins - 1;
    status = qobs_squared_error_find(&e, h, &q, first, (uint64_t)stride > h->bins ? h->bins : (size_t)stride, &bin, error);
    if (status == QOBS_OK)
        *amax = qobs_bin_centre(h, bin);
    return status;
}
