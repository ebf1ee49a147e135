/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include <math.h>

#include "number/convert.h"
#include "histogram/from_histogram.h"

enum { CHUNK = 256, LANES = 16 };

float qobs_bin_centre(const struct histogram_view *h, size_t bin) { return (h->edges[bin + 1] + h->edges[bin]) / 2; }

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

/* ---- Quantizing centres ------------------------------------------------------------------------------------------ */

/* For magnitudes below 2^22. */
static inline float round_to_integer(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

static inline float clamp(float x, float min, float max) { return x < min ? min : x > max ? max : x; }

/* A centre c becomes round(clamp(c * scale)) * back, or with quotients in place of products. */
struct centre_rule {
    float scale, back;
    bool divides, divides_back; /* by scale and by back */
    float min, max;             /* integers, so that clamping before rounding changes nothing */
    const qobs_format *format;  /* NULL: rounded to integers */
};

static void quantize(const struct centre_rule *r, size_t n, const float *c, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = clamp(r->divides ? c[i] / r->scale : c[i] * r->scale, r->min, r->max);
    if (r->format)
        qobs_round_floats(r->format, n, out, out, true);
    for (size_t i = 0; i < n; i++) {
        const float rounded = r->format ? out[i] : round_to_integer(out[i]);
        out[i] = r->divides_back ? rounded / r->back : rounded * r->back;
    }
}

/* Scale and zero point of the range (0, amax), as floats. The zero point is truncated to an integer. */
static int torch_qparams(const struct formula *formula, float amax, float *scale, float *zero_point, qobs_error *error)
{
    const float zero = 0;
    const struct range_view range = {.dtype = QOBS_F32, .n = 1, .rank = RANK_SCALAR, .min = &zero, .max = &amax};
    unsigned char s[8], z[8];
    const struct qparam_dtypes dtypes = qobs_formula_dtypes(formula, &range);
    RETURN_IF_FAILED(qobs_formula_qparams(formula, &range, s, z, error));
    int32_t integer;
    memcpy(&integer, z, sizeof integer);
    *scale = (float)qobs_element(s, dtypes.scale);
    *zero_point = dtypes.zero_point == QOBS_I32 ? (float)integer : truncf((float)qobs_element(z, dtypes.zero_point));
    return QOBS_OK;
}

static int rule_of(const struct bins_params *q, const struct formula *formula, float amax, struct centre_rule *r,
                   qobs_error *error)
{
    const bool nothing = amax <= q->zero_amax; /* all centres become 0 */
    const float quant_min = nothing ? 0 : (float)q->quant_min, quant_max = (float)q->quant_max;
    float scale = 0, zero_point = 0;
    switch (q->centres) {
    case CENTRES_MODELOPT_INTEGER:
        scale = nothing ? 1 : quant_max / amax;
        *r = (struct centre_rule){scale, scale, false, true, quant_min, nothing ? 0 : quant_max, NULL};
        break;
    case CENTRES_MODELOPT_E4M3:
        scale = 1 / (nothing ? 1 : amax) * 448;
        *r = (struct centre_rule){scale, 1 / scale, false, false, -448, 448, q->format};
        break;
    case CENTRES_QUARK_FLOAT:
        scale = amax / quant_max;
        *r = (struct centre_rule){scale, scale, true, false, -quant_max, quant_max, q->format};
        break;
    case CENTRES_TORCH:
        RETURN_IF_FAILED(torch_qparams(formula, amax, &scale, &zero_point, error));
        *r = (struct centre_rule){
            1 / scale, scale, false, false, (float)q->quant_min - zero_point, quant_max - zero_point, NULL};
        break;
    case CENTRES_NONE:
        break;
    }
    return QOBS_OK;
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

int qobs_squared_error(const struct squared_error *e, const struct bins_params *q, const struct formula *formula,
                       float amax, double *mean, qobs_error *error)
{
    struct centre_rule rule = {0};
    float quantized[CHUNK];
    double lane[LANES] = {0}, sum = 0;
    RETURN_IF_FAILED(rule_of(q, formula, amax, &rule, error));
    for (size_t first = 0; first < e->used; first += CHUNK) {
        const size_t n = e->used - first < CHUNK ? e->used - first : CHUNK;
        const float *c = e->centre + first, *count = e->count + first;
        quantize(&rule, n, c, quantized);
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

/* The bin, of first, first + params->stride, ... whose centre as amax has the smallest error; the first of several. NaN
 * counts as the smallest. */
static int find(const struct squared_error *e, const struct histogram_view *h, const struct bins_params *params,
                const struct formula *formula, size_t first, size_t *bin, double *score, qobs_error *error)
{
    const size_t stride = (uint64_t)params->stride > h->bins ? h->bins : (size_t)params->stride;
    double min = INFINITY;
    *bin = first;
    *score = min;
    for (size_t i = first; i < h->bins; i += stride) {
        double mean = 0;
        RETURN_IF_FAILED(qobs_squared_error(e, params, formula, qobs_bin_centre(h, i), &mean, error));
        if (mean < min || isnan(mean)) {
            *bin = i;
            min = *score = mean;
        }
        if (isnan(mean))
            break;
    }
    return QOBS_OK;
}

int qobs_amax_by_mse(const struct bins_params *params, const struct formula *formula, const struct histogram_view *h,
                     double *workspace, struct found_amax *found, qobs_error *error)
{
    const int64_t start_bin = params->start_bin;
    size_t bin;
    if (params->stride < 1)
        return qobs_invalid(error, "stride: is %lld, must be above 0", (long long)params->stride);
    if (start_bin < 0 || (!params->clamp_start && (uint64_t)start_bin >= h->bins))
        return qobs_invalid(error, "start_bin: is %lld, allowed are 0 to %zu", (long long)start_bin, h->bins - 1);
    if (params->centres == CENTRES_NONE)
        return qobs_invalid(error, "dtype: is %s, squared errors take int4, uint4, int8, uint8, fp8_e4m3, fp8_e5m2",
                            params->dtype);
    const struct squared_error e = qobs_squared_error_prepare(h, (float *)(void *)workspace);
    const size_t first = (uint64_t)start_bin < h->bins ? (size_t)start_bin : h->bins - 1;
    const int status = find(&e, h, params, formula, first, &bin, &found->score, error);
    if (status == QOBS_OK)
        found->amax = qobs_bin_centre(h, bin);
    return status;
}
