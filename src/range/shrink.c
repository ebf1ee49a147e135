/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "range/shrink.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "formula/formula.h"
#include "base/error.h"
#include "formula/qparam_view.h"
#include "number/number.h"

/* x * factor as torch has it for a tensor and a Python number: in float, rounded to the tensor's dtype. */
static inline float times(qobs_dtype dtype, float x, float factor)
{
    const float product = x * factor;
    return dtype == QOBS_F32    ? product
           : dtype == QOBS_BF16 ? float_of_bf16(bf16_of_float(product))
                                : float_of_f16(f16_of_float(product));
}

double qobs_shrink_end(const struct shrink *s, int step, double end)
{
    if (s->dtype == QOBS_F64)
        return end * s->settings->expand * (step < 0 ? 1 : 1 - step / s->settings->grid);
    return (double)times(s->dtype, times(s->dtype, (float)end, (float)s->settings->expand), step < 0 ? 1 : s->p[step]);
}

static inline float load_number(qobs_dtype dtype, const unsigned char *x)
{
    float f;
    uint16_t h;
    if (dtype == QOBS_F32) {
        memcpy(&f, x, sizeof f);
        return f;
    }
    memcpy(&h, x, sizeof h);
    return dtype == QOBS_BF16 ? float_of_bf16(h) : float_of_f16(h);
}

static inline void store_number(qobs_dtype dtype, float f, unsigned char *x)
{
    const uint16_t h = dtype == QOBS_BF16 ? bf16_of_float(f) : f16_of_float(f);
    if (dtype == QOBS_F32)
        memcpy(x, &f, sizeof f);
    else
        memcpy(x, &h, sizeof h);
}

/* dtype is constant where this is inlined. What is not shrunk keeps its bits. */
static inline void shrink_ends(const struct shrink *s, qobs_dtype dtype, const int32_t *step, size_t n, const unsigned char *from,
                               unsigned char *to)
{
    const float expand = (float)s->settings->expand;
    const size_t size = dtype == QOBS_F32 ? 4 : 2;
    memcpy(to, from, n * size);
    for (size_t i = 0; i < n; i++) {
        const float given = load_number(dtype, from + i * size), whole = expand == 1 ? given : times(dtype, given, expand);
        if (step[i] >= 0 || expand != 1)
            store_number(dtype, step[i] < 0 ? whole : times(dtype, whole, s->p[step[i]]), to + i * size);
    }
}

void qobs_shrink_ends(const struct shrink *s, const int32_t *step, size_t n, const unsigned char *from, unsigned char *to)
{
    switch (s->dtype) {
    case QOBS_F32: shrink_ends(s, QOBS_F32, step, n, from, to); break;
    case QOBS_BF16: shrink_ends(s, QOBS_BF16, step, n, from, to); break;
    case QOBS_F16: shrink_ends(s, QOBS_F16, step, n, from, to); break;
    default:
        for (size_t i = 0; i < n; i++)
            qobs_put_element(to + i * sizeof(double), s->dtype, qobs_shrink_end(s, step[i], qobs_element(from + i * sizeof(double), s->dtype)));
    }
}

/* An end of candidate c's range. */
static double candidate_end(const struct shrink *s, size_t c, double end)
{
    return c != s->before || c < (size_t)s->settings->steps ? qobs_shrink_end(s, (int)c, end) : end;
}

/* ---- Begin and end ---------------------------------------------------------------------------------------------------- */

static double largest(const struct shrink *s, const qobs_plan *plan, const unsigned char *min, const unsigned char *max)
{
    const size_t size = qobs_dtype_size(s->dtype);
    double amax = 0;
    for (int64_t i = 0; i < plan->qparams; i++) {
        amax = fmax(amax, fabs(qobs_element(min + (size_t)i * size, s->dtype)));
        amax = fmax(amax, fabs(qobs_element(max + (size_t)i * size, s->dtype)));
    }
    return amax;
}

/* Can kernels do what the formula would? `how` is then what they need to know. */
static bool kernels_can(const struct shrink *s, struct qobs_shrinking *how)
{
    const qobs_config *c = &s->config;
    const bool old = c->version != VERSION_CURRENT, mx = qobs_config_is_mx(c), wide = qobs_default_rank(c) != RANK_TENSOR;
    const double half = ldexp(1, c->num_bits - 1), most = s->integers ? half - 1 : c->num_bits == 4 ? 6 : 448;
    const bool whole = qobs_config_has_whole_zero_points(c) && !(c->zp_dtype == QOBS_I8 && c->num_bits > 8);
    *how = (struct qobs_shrinking){.integers = s->integers,
                                   .symmetric = c->symmetric,
                                   .mx = mx,
                                   .quant_min = (float)(s->integers ? -half : -most),
                                   .quant_max = (float)most,
                                   .mx_offset = c->num_bits == 4 ? 2 : 8,
                                   .eps = mx ? 1 : s->dtype == QOBS_F32 ? 0x1p-23f : s->dtype == QOBS_BF16 ? 0x1p-7f : 0x1p-10f,
                                   .floor = old ? 0x1p-23f : 0};
    if (s->dtype == QOBS_F64 || s->global_scale || s->settings->optimize_global_scale)
        return false;
    if (mx && (old || !c->symmetric || s->dtype == QOBS_F16))
        return false;
    if (!mx && !old && c->scale_dtype != SCALE_NATIVE)
        return false;
    return c->symmetric || (s->integers && whole && !wide);
}

static size_t p_size(const struct shrink *s)
{
    return 2 * s->workspace * sizeof *s->p;
}

int qobs_shrink_begin(struct shrink *s, const struct runtime *runtime, const struct qobs_kernels *kernels,
                      const qobs_config *config, const struct search_settings *settings, const qobs_plan *plan, const float *global_scale, const void *min,
                      const void *max, qobs_error *error)
{
    const bool first_is_before = settings->expand == 1 && settings->steps > 0;
    *s = (struct shrink){.runtime = runtime,
                         .settings = settings,
                         .config = *config,
                         .dtype = plan->dtype,
                         .integers = config->type == TYPE_INT,
                         .before = first_is_before ? 0 : (size_t)settings->steps,
                         .global_scale = global_scale};
    s->candidates = (size_t)settings->steps + (first_is_before ? 0 : 1);
    s->workspace = (s->candidates + 3) / 4 * 4;
    /* Upstream leaves the dtype of scales out of the search where a global scale will follow. */
    if (qobs_config_strategy(config) == STRATEGY_TENSOR_GROUP)
        s->config.scale_dtype = SCALE_NATIVE;
    enum qobs_kernel_dtype dtype;
    qobs_kernel_dtype_of(s->dtype, &dtype);
    s->kernel = kernels_can(s, &s->how) ? kernels->search_shrink[dtype] : NULL;
    s->p = qobs_allocate(runtime, p_size(s));
    if (!s->p)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "search: no memory for %zu bytes", p_size(s));
    s->how.min_p = 1;
    for (size_t c = 0; c < s->workspace; c++) {
        s->p[c] = c < (size_t)settings->steps ? (float)(1 - (double)c / settings->grid) : 1;
        s->p[s->workspace + c] = 1 / s->p[c];
        s->how.min_p = s->p[c] < s->how.min_p ? s->p[c] : s->how.min_p;
    }
    if (!settings->optimize_global_scale)
        return QOBS_OK;
    const double amax = largest(s, plan, min, max);
    s->global_scales = qobs_allocate(runtime, s->candidates * sizeof *s->global_scales);
    if (!s->global_scales) {
        qobs_release(runtime, s->p, p_size(s));
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "search: no memory for %zu bytes", s->candidates * sizeof *s->global_scales);
    }
    for (size_t c = 0; c < s->candidates; c++)
        s->global_scales[c] = qobs_compressed_tensors_global_scale(&s->config, s->dtype, candidate_end(s, c, amax));
    return QOBS_OK;
}

void qobs_shrink_release(struct shrink *s)
{
    qobs_release(s->runtime, s->p, p_size(s));
    qobs_release(s->runtime, s->global_scales, s->candidates * sizeof *s->global_scales);
}

size_t qobs_shrunk_size(const struct shrink *s)
{
    return s->workspace * (QOBS_SEARCH_LANES * 3 * sizeof(float) + 4 * sizeof(double));
}

void qobs_shrunk_place(const struct shrink *s, unsigned char *memory, struct shrunk *shrunk)
{
    const size_t floats = s->workspace * QOBS_SEARCH_LANES, step = s->workspace * sizeof(double);
    float *const first = (float *)(void *)memory;
    unsigned char *const raw = (unsigned char *)(first + 3 * floats);
    *shrunk = (struct shrunk){.scale = first,
                              .inverse = first + floats,
                              .shift = first + 2 * floats,
                              .min = raw,
                              .max = raw + step,
                              .raw_scale = raw + 2 * step,
                              .raw_zero_point = raw + 3 * step};
}

/* ---- Candidates ------------------------------------------------------------------------------------------------------- */

/* n candidates from c on of one range, by the formula itself. */
static void ask_formula(const struct shrink *s, size_t range, size_t c, size_t n, const float *global_scale, int shift,
                           struct shrunk *to)
{
    const size_t size = qobs_dtype_size(s->dtype);
    const struct range_view view = {.dtype = s->dtype,
                                    .n = n,
                                    .rank = qobs_default_rank(&s->config),
                                    .min = to->min + c * size,
                                    .max = to->max + c * size,
                                    .global_scale = global_scale};
    qobs_dtype scale_dtype, zero_point_dtype;
    qobs_formula_dtypes(&s->config, &view, &scale_dtype, &zero_point_dtype);
    qobs_compressed_tensors_qparams(&s->config, &view, to->raw_scale, to->raw_zero_point);
    for (size_t i = 0; i < n; i++) {
        double scale = qobs_qparam_at(to->raw_scale, scale_dtype, (int64_t)i);
        if (global_scale)
            scale = scale_dtype == QOBS_F64 ? scale / (double)*global_scale : (double)((float)scale / *global_scale);
        const float zero_point = (float)qobs_qparam_at(to->raw_zero_point, zero_point_dtype, (int64_t)i);
        const double scaled = ldexp(scale, shift);
        const size_t at = (c + i) * QOBS_SEARCH_LANES + range;
        to->scale[at] = isfinite(scale) && scaled > (double)FLT_MAX ? FLT_MAX : (float)scaled;
        qobs_search_candidate(s->integers, to->scale[at], zero_point, &to->inverse[at], &to->shift[at]);
    }
}

static void ask_formula_for_range(const struct shrink *s, const struct ranges *ranges, size_t range, struct shrunk *to)
{
    const size_t size = qobs_dtype_size(s->dtype);
    const int shift = ranges->shift[range];
    for (size_t c = 0; c < s->candidates; c++) {
        qobs_put_element(to->min + c * size, s->dtype, candidate_end(s, c, ranges->min[range]));
        qobs_put_element(to->max + c * size, s->dtype, candidate_end(s, c, ranges->max[range]));
    }
    for (size_t c = 0; c < s->candidates && s->global_scales; c++)
        ask_formula(s, range, c, 1, &s->global_scales[c], shift, to);
    if (!s->global_scales)
        ask_formula(s, range, 0, s->candidates, s->global_scale, shift, to);
}

static void ask_kernel(const struct shrink *s, const struct ranges *ranges, struct shrunk *to)
{
    static const float one[] = {1};
    const bool expanded = s->settings->expand != 1;
    _Alignas(64) float min[QOBS_SEARCH_LANES], max[QOBS_SEARCH_LANES], factor[QOBS_SEARCH_LANES];
    _Alignas(64) float expanded_min[QOBS_SEARCH_LANES], expanded_max[QOBS_SEARCH_LANES];
    for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
        const bool there = i < ranges->n && ranges->finite[i]; /* elsewhere any range that costs nothing more */
        const double low = there ? ranges->min[i] : -0.25, high = there ? ranges->max[i] : 0.25;
        min[i] = (float)low;
        max[i] = (float)high;
        factor[i] = there ? (float)qobs_search_factor(ranges->shift[i]) : 1;
        expanded_min[i] = expanded ? (float)qobs_shrink_end(s, -1, low) : min[i];
        expanded_max[i] = expanded ? (float)qobs_shrink_end(s, -1, high) : max[i];
    }
    s->kernel(&s->how, expanded_min, expanded_max, factor, s->p, s->p + s->workspace, s->workspace, to->scale, to->inverse, to->shift);
    for (size_t i = 0; i < ranges->n; i++)
        to->finite[i] = to->scale[i] < INFINITY; /* the greatest; zero points are finite if scales are */
    if (s->before < (size_t)s->settings->steps || s->without_before)
        return;
    const size_t at = s->before * QOBS_SEARCH_LANES;
    s->kernel(&s->how, min, max, factor, one, one, 1, to->scale + at, to->inverse + at, to->shift + at);
}

/* What is there without a range, so that errors of nothing are 0 and improve nothing. */
static void fill_lane(const struct shrink *s, size_t lane, struct shrunk *to)
{
    for (size_t at = lane; at < s->candidates * QOBS_SEARCH_LANES; at += QOBS_SEARCH_LANES) {
        to->scale[at] = to->inverse[at] = 1;
        to->shift[at] = 0;
    }
}

void qobs_shrink(const struct shrink *s, const struct ranges *ranges, struct shrunk *to)
{
    if (s->kernel) {
        ask_kernel(s, ranges, to);
        return;
    }
    for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
        to->finite[i] = false;
        if (i < ranges->n && ranges->finite[i])
            ask_formula_for_range(s, ranges, i, to);
        else
            fill_lane(s, i, to);
    }
    /* What fills candidates up to a multiple of 4. */
    for (size_t at = s->candidates * QOBS_SEARCH_LANES; at < s->workspace * QOBS_SEARCH_LANES; at++) {
        to->scale[at] = to->scale[at - QOBS_SEARCH_LANES];
        to->inverse[at] = to->inverse[at - QOBS_SEARCH_LANES];
        to->shift[at] = to->shift[at - QOBS_SEARCH_LANES];
    }
}
