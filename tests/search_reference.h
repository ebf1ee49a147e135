/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search for the range with the least error, slowly: every candidate of every qparam in C order, errors in double.
 */
#ifndef QOBS_TEST_SEARCH_REFERENCE_H
#define QOBS_TEST_SEARCH_REFERENCE_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/tensor.h"
#include "number/convert.h"
#include "qobs/format.h"
#include "qobs/plan.h"
#include "qobs/qobs.h"
#include "qobs/stateless.h"
#include "calls.h"

/* The target of quantization in upstream's terms. */
struct reference_format {
    bool is_float;
    int bits;
};

struct reference {
    const qobs_config *config; /* whose scale and zero point a candidate gets */
    struct reference_format format;
    const qobs_plan *plan;
    const unsigned char *data; /* in C order */
    qobs_dtype dtype;
    int64_t columns;
    const float *weights; /* a column each; NULL: 1 */
    double grid, expand, norm;
    const float *global_scale; /* NULL: none */
    int steps;
    size_t qparams;
    bool unrounded; /* what is quantized comes back in double, not in f32 */
    /* The results: [step * qparams + qparam]. */
    double *error;
    unsigned char *lo, *hi; /* of dtype */
};

/* x to `digits` binary digits, none below 2^last; ties to even. */
static inline double reference_round(double x, int digits, int last)
{
    int exponent;
    frexp(x, &exponent);
    const int at = exponent - digits > last ? exponent - digits : last;
    return x == 0 ? x : copysign(ldexp(nearbyint(ldexp(fabs(x), -at)), at), x);
}

static inline double reference_limit(struct reference_format f, bool is_max)
{
    const double half = ldexp(1, f.bits - 1), most = f.is_float ? (f.bits == 4 ? 6 : 448) : half - 1;
    return is_max ? most : f.is_float ? -most : -half;
}

/* compressed-tensors' fake_quantize in f32, also of F64, which is searched in float. */
static inline double reference_quantize(const struct reference *r, double x, double scale, double zero_point)
{
    const struct reference_format f = r->format;
    double v = (double)((float)x / (float)scale + (float)zero_point);
    v = fmin(fmax(v, reference_limit(f, false)), reference_limit(f, true));
    v = !f.is_float ? nearbyint(v) : f.bits == 4 ? reference_round(v, 2, -1) : reference_round(v, 4, -9);
    return r->unrounded ? (v - zero_point) * (double)(float)scale
                        : (double)(((float)v - (float)zero_point) * (float)scale);
}

static inline double reference_number(const void *array, qobs_dtype dtype, size_t i)
{
    const unsigned char *at = (const unsigned char *)array + i * qobs_dtype_size(dtype);
    const qobs_format *e4m3 = qobs_format_find("fp8_e4m3");
    int16_t half;
    int32_t word;
    switch (dtype) {
    case QOBS_I8:
        return (double)*(const int8_t *)at;
    case QOBS_I16:
        return memcpy(&half, at, 2), (double)half;
    case QOBS_I32:
        return memcpy(&word, at, 4), (double)word;
    case QOBS_F8_E4M3:
        return (double)qobs_format_decode(e4m3, *at);
    default:
        return qobs_element(at, dtype);
    }
}

/* p as upstream's arithmetic sees a Python number beside a tensor. */
static inline void reference_scaled(const unsigned char *from, unsigned char *to, qobs_dtype dtype, double factor)
{
    const double x = qobs_element(from, dtype);
    qobs_put_element(to, dtype, dtype == QOBS_F64 ? x * factor : (double)((float)x * (float)factor));
}

/* One candidate's errors. */
static inline void reference_step(struct reference *r, int step)
{
    qobs_dtype scale_dtype, zero_point_dtype;
    qobs_error error;
    const size_t size = qobs_dtype_size(r->dtype), at = (size_t)step * r->qparams;
    qobs_config_qparam_dtypes(r->config, r->dtype, &scale_dtype, &zero_point_dtype, &error);
    scale_dtype = r->global_scale ? QOBS_F32 : scale_dtype;
    void *scale = malloc(r->qparams * 8 + 8), *zero_point = malloc(r->qparams * 8 + 8);
    if (call_calculate_qparams(r->config, r->dtype, r->qparams, r->lo + at * size, r->hi + at * size, r->global_scale,
                               scale, zero_point, &error) != QOBS_OK) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    for (size_t q = 0; q < r->qparams; q++)
        r->error[at + q] = 0;
    for (int64_t i = 0; i < qobs_plan_run_count(r->plan); i++) {
        qobs_run run;
        qobs_plan_run(r->plan, i, &run, NULL);
        const size_t q = (size_t)run.qparam;
        double s = reference_number(scale, scale_dtype, q);
        if (r->global_scale)
            s = (double)((float)s / *r->global_scale);
        const double z = reference_number(zero_point, zero_point_dtype, q);
        for (int64_t j = 0; j < run.length; j++) {
            const int64_t offset = run.offset + j * run.stride;
            const bool padding = run.offset == QOBS_PADDING;
            const double x = padding ? 0 : (double)(float)qobs_element(r->data + offset, r->dtype);
            const double w = r->weights && !padding ? (double)r->weights[offset / (int64_t)size % r->columns] : 1;
            r->error[at + q] += w * pow(fabs(reference_quantize(r, x, s, z) - x), r->norm);
        }
    }
    free(scale);
    free(zero_point);
}

/* Errors and ranges of all candidates of ranges from min to max. */
static inline void reference_search(struct reference *r, const void *min, const void *max)
{
    const size_t size = qobs_dtype_size(r->dtype);
    r->error = malloc((size_t)r->steps * r->qparams * sizeof *r->error + 1);
    r->lo = malloc((size_t)r->steps * r->qparams * size + 1);
    r->hi = malloc((size_t)r->steps * r->qparams * size + 1);
    for (int step = 0; step < r->steps; step++) {
        for (size_t q = 0; q < r->qparams; q++) {
            const size_t to = ((size_t)step * r->qparams + q) * size;
            unsigned char wide[8];
            reference_scaled((const unsigned char *)min + q * size, wide, r->dtype, r->expand);
            reference_scaled(wide, r->lo + to, r->dtype, 1 - step / r->grid);
            reference_scaled((const unsigned char *)max + q * size, wide, r->dtype, r->expand);
            reference_scaled(wide, r->hi + to, r->dtype, 1 - step / r->grid);
        }
        reference_step(r, step);
    }
}

static inline void reference_free(struct reference *r)
{
    free(r->error);
    free(r->lo);
    free(r->hi);
}

/* Two errors as good as equal. */
static inline bool reference_tie(double a, double b) { return fabs(a - b) <= 2e-6 * fmax(fabs(a), fabs(b)); }

/* Returns the number of candidates after which upstream's rule stops. *tie: a comparison on the way was nearly equal,
 * so another number may be right, too. patience < 0: it never stops. */
static inline int reference_stop(const double *error, int steps, size_t qparams, int64_t patience, bool *tie)
{
    double *best = malloc(qparams * sizeof *best + 1);
    int64_t without = 0;
    int step = 0;
    *tie = false;
    for (size_t q = 0; q < qparams; q++)
        best[q] = DBL_MAX;
    while (step < steps) {
        bool improved = false;
        for (size_t q = 0; q < qparams; q++) {
            const double e = error[(size_t)step * qparams + q];
            *tie |= e != best[q] && reference_tie(e, best[q]);
            improved |= e < best[q];
            best[q] = e < best[q] ? e : best[q];
        }
        step++;
        without = improved ? 0 : without + 1;
        if (!improved && patience >= 0 && without >= patience)
            break;
    }
    free(best);
    return step;
}

/* Is `step` the first with the least error among the first `stop`, or as good as that? */
static inline bool reference_is_best(const double *error, size_t qparams, size_t q, int stop, int step)
{
    double smallest = INFINITY;
    for (int i = 0; i < stop; i++)
        smallest = fmin(smallest, error[(size_t)i * qparams + q]);
    const double e = step >= 0 && step < stop ? error[(size_t)step * qparams + q] : INFINITY;
    return e <= smallest * (1 + 2e-6);
}

#endif
