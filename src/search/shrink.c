/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "search/grid_search.h"

#include "number/native.h"
#include "quantize/qparam_view.h"

#define NATIVE_BODY "search/shrink.inl.h"
#include "number/native_each.inl.h"

double qobs_shrink_bound(const struct shrink *s, int step, double bound)
{
    FOR_NATIVE(s->dtype, bound = bound_at, s->params, step, bound)
    return bound;
}

void qobs_shrink_bounds(const struct shrink *s, const int32_t *step, size_t n, const unsigned char *from,
                        unsigned char *to)
{
    FOR_NATIVE(s->dtype, shrink_bounds, s->params, step, n, from, to)
}

/* A bound of candidate c's range. */
static double candidate_bound(const struct shrink *s, size_t c, double bound)
{
    return c != s->before || c < (size_t)s->params->steps ? qobs_shrink_bound(s, (int)c, bound) : bound;
}

/* ---- Begin and end ----------------------------------------------------------------------------------------------- */

static double amax_of(const struct shrink *s, const qobs_plan *plan, const unsigned char *min, const unsigned char *max)
{
    const size_t size = qobs_dtype_size(s->dtype);
    double amax = 0;
    for (int64_t i = 0; i < plan->qparams; i++) {
        amax = fmax(amax, fabs(qobs_element(min + (size_t)i * size, s->dtype)));
        amax = fmax(amax, fabs(qobs_element(max + (size_t)i * size, s->dtype)));
    }
    return amax;
}

/* Parameters of the kernel; returns whether it implements the formula for these ranges. */
static bool kernel_applies(const struct shrink *s, bool each_global_scale, struct shrink_rule *how)
{
    *how = s->params->shrinking;
    how->eps = how->mx ? 1 : s->dtype == QOBS_F32 ? 0x1p-23f : s->dtype == QOBS_BF16 ? 0x1p-7f : 0x1p-10f;
    if (s->dtype == QOBS_F64 || s->global_scale || each_global_scale || (how->mx && s->dtype == QOBS_F16))
        return false;
    return s->params->simd;
}

static size_t p_size(const struct shrink *s) { return 2 * s->padded * sizeof *s->p; }

static bool first_is_before(const struct grid_params *params) { return params->expand == 1 && params->steps > 0; }

size_t qobs_shrink_candidates(const struct grid_params *params)
{
    return (size_t)params->steps + (first_is_before(params) ? 0 : 1);
}

int qobs_shrink_begin(struct shrink *s, const struct grid_search *g, qobs_error *error)
{
    const struct grid_params *params = g->params;
    const struct runtime *runtime = g->runtime;
    *s = (struct shrink){.runtime = runtime,
                         .params = params,
                         .formula = *g->formula,
                         .dtype = g->plan->dtype,
                         .integers = !params->format,
                         .before = first_is_before(params) ? 0 : (size_t)params->steps,
                         .candidates = qobs_shrink_candidates(params),
                         .global_scale = g->global_scale};
    s->padded = (s->candidates + 3) / 4 * 4;
    if (params->native_scales) { /* MX is a format of stored scales, too */
        s->formula.params.compressed_tensors.scale_dtype = SCALE_NATIVE;
        s->formula.params.compressed_tensors.mx = false;
    }
    enum kernel_dtype dtype;
    qobs_kernel_dtype_of(s->dtype, &dtype);
    s->kernel = kernel_applies(s, g->each_global_scale, &s->how) ? g->kernels->search_shrink[dtype] : NULL;
    s->p = qobs_allocate(runtime, p_size(s));
    RETURN_IF_FAILED(qobs_require_memory(s->p, "search", p_size(s), error));
    s->how.min_p = 1;
    for (size_t c = 0; c < s->padded; c++) {
        s->p[c] = c < (size_t)params->steps ? (float)(1 - (double)c / params->grid) : 1;
        s->p[s->padded + c] = 1 / s->p[c];
        s->how.min_p = s->p[c] < s->how.min_p ? s->p[c] : s->how.min_p;
    }
    if (!g->each_global_scale)
        return QOBS_OK;
    const double amax = amax_of(s, g->plan, g->min, g->max);
    s->global_scales = qobs_allocate(runtime, s->candidates * sizeof *s->global_scales);
    if (!s->global_scales) {
        qobs_release(runtime, s->p, p_size(s));
        return qobs_no_memory(error, "search: no memory for %zu bytes", s->candidates * sizeof *s->global_scales);
    }
    for (size_t c = 0; c < s->candidates; c++)
        s->global_scales[c] = s->formula.ops->global_scale(&s->formula.params, s->dtype, candidate_bound(s, c, amax));
    return QOBS_OK;
}

void qobs_shrink_release(struct shrink *s)
{
    qobs_release(s->runtime, s->p, p_size(s));
    qobs_release(s->runtime, s->global_scales, s->candidates * sizeof *s->global_scales);
}

size_t qobs_shrunk_size(const struct shrink *s)
{
    return s->padded * (QOBS_SEARCH_LANES * 3 * sizeof(float) + 4 * sizeof(double));
}

void qobs_shrunk_place(const struct shrink *s, unsigned char *memory, struct shrunk *shrunk)
{
    const size_t floats = s->padded * QOBS_SEARCH_LANES, step = s->padded * sizeof(double);
    float *const first = (float *)(void *)memory;
    unsigned char *const raw = (unsigned char *)(first + 3 * floats);
    *shrunk = (struct shrunk){.scale = first,
                              .inverse = first + floats,
                              .offset = first + 2 * floats,
                              .min = raw,
                              .max = raw + step,
                              .raw_scale = raw + 2 * step,
                              .raw_zero_point = raw + 3 * step};
}

/* ---- Candidates -------------------------------------------------------------------------------------------------- */

/* Candidates c to c + n - 1 of one range, which share a global scale. */
static void compute_candidates(const struct shrink *s, size_t range, size_t c, size_t n, const float *global_scale,
                               int prescale_exp, struct shrunk *to)
{
    const size_t size = qobs_dtype_size(s->dtype);
    const struct range_view view = {.dtype = s->dtype,
                                    .n = n,
                                    .rank = s->formula.params.rank,
                                    .min = to->min + c * size,
                                    .max = to->max + c * size,
                                    .global_scale = global_scale};
    const struct qparam_dtypes dtypes = qobs_formula_dtypes(&s->formula, &view);
    (void)qobs_formula_qparams(&s->formula, &view, to->raw_scale, to->raw_zero_point, NULL);
    for (size_t i = 0; i < n; i++) {
        double scale = qobs_qparam_at(to->raw_scale, dtypes.scale, (int64_t)i);
        if (global_scale)
            scale = dtypes.scale == QOBS_F64 ? scale / (double)*global_scale : (double)((float)scale / *global_scale);
        const float zero_point = (float)qobs_qparam_at(to->raw_zero_point, dtypes.zero_point, (int64_t)i);
        const double scaled = ldexp(scale, prescale_exp);
        const size_t at = (c + i) * QOBS_SEARCH_LANES + range;
        to->scale[at] = isfinite(scale) && scaled > (double)FLT_MAX ? FLT_MAX : (float)scaled;
        qobs_search_candidate(s->integers, to->scale[at], zero_point, &to->inverse[at], &to->offset[at]);
    }
}

static void candidates_scalar(const struct shrink *s, const struct range_batch *ranges, size_t range, struct shrunk *to)
{
    const size_t size = qobs_dtype_size(s->dtype);
    const int prescale_exp = ranges->prescale_exp[range];
    for (size_t c = 0; c < s->candidates; c++) {
        qobs_put_element(to->min + c * size, s->dtype, candidate_bound(s, c, ranges->min[range]));
        qobs_put_element(to->max + c * size, s->dtype, candidate_bound(s, c, ranges->max[range]));
    }
    for (size_t c = 0; c < s->candidates && s->global_scales; c++)
        compute_candidates(s, range, c, 1, &s->global_scales[c], prescale_exp, to);
    if (!s->global_scales)
        compute_candidates(s, range, 0, s->candidates, s->global_scale, prescale_exp, to);
}

static void candidates_simd(const struct shrink *s, const struct range_batch *ranges, struct shrunk *to)
{
    static const float one[] = {1};
    const bool expanded = s->params->expand != 1;
    _Alignas(64) float min[QOBS_SEARCH_LANES], max[QOBS_SEARCH_LANES], factor[QOBS_SEARCH_LANES];
    _Alignas(64) float expanded_min[QOBS_SEARCH_LANES], expanded_max[QOBS_SEARCH_LANES];
    for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
        const bool valid = i < ranges->n && ranges->finite[i];
        const double low = valid ? ranges->min[i] : -0.25, high = valid ? ranges->max[i] : 0.25;
        min[i] = (float)low;
        max[i] = (float)high;
        factor[i] = valid ? (float)qobs_search_prescale(ranges->prescale_exp[i]) : 1;
        expanded_min[i] = expanded ? (float)qobs_shrink_bound(s, -1, low) : min[i];
        expanded_max[i] = expanded ? (float)qobs_shrink_bound(s, -1, high) : max[i];
    }
    s->kernel(&s->how, expanded_min, expanded_max, factor, s->p, s->p + s->padded, s->padded, to->scale, to->inverse,
              to->offset);
    for (size_t i = 0; i < ranges->n; i++)
        to->finite[i] = to->scale[i] < INFINITY; /* the largest scale; zero points are finite if scales are */
    if (s->before < (size_t)s->params->steps || s->without_before)
        return;
    const size_t at = s->before * QOBS_SEARCH_LANES;
    s->kernel(&s->how, min, max, factor, one, one, 1, to->scale + at, to->inverse + at, to->offset + at);
}

/* Candidates of a lane without a range, whose elements are zeros. Their errors are 0 and improve nothing. */
static void fill_lane(const struct shrink *s, size_t lane, struct shrunk *to)
{
    for (size_t at = lane; at < s->candidates * QOBS_SEARCH_LANES; at += QOBS_SEARCH_LANES) {
        to->scale[at] = to->inverse[at] = 1;
        to->offset[at] = 0;
    }
}

void qobs_shrink(const struct shrink *s, const struct range_batch *ranges, struct shrunk *to)
{
    if (s->kernel) {
        candidates_simd(s, ranges, to);
        return;
    }
    for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
        to->finite[i] = false;
        if (i < ranges->n && ranges->finite[i])
            candidates_scalar(s, ranges, i, to);
        else
            fill_lane(s, i, to);
    }
    /* Padding of candidates to a multiple of 4. */
    for (size_t at = s->candidates * QOBS_SEARCH_LANES; at < s->padded * QOBS_SEARCH_LANES; at++) {
        to->scale[at] = to->scale[at - QOBS_SEARCH_LANES];
        to->inverse[at] = to->inverse[at - QOBS_SEARCH_LANES];
        to->offset[at] = to->offset[at - QOBS_SEARCH_LANES];
    }
}
