/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "search/search.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "convention/convention.h"
#include "error.h"
#include "format/format.h"
#include "format/grid.h"
#include "format/qparams.h"

int qobs_search_norm(struct search_norm *norm, double value, qobs_error *error)
{
    if (!isfinite(value) || value <= 0)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "norm: is %g, allowed are finite numbers above 0", value);
    norm->norm = value;
    return QOBS_OK;
}

static double error_of(const struct qobs_quantizer *q, double norm, float x, float scale, float zero_point)
{
    const struct grid_float grid = {q->floor, q->lift};
    float v = x * (1 / scale) + zero_point;
    v = v < (float)q->least ? (float)q->least : v > (float)q->greatest ? (float)q->greatest : v;
    const double e = fabs(((double)grid_round_float(grid, v) - (double)zero_point) * (double)scale - (double)x);
    return norm == 2 ? e * e : norm == 1 ? e : e == 0 ? 0 : pow(e, norm);
}

void qobs_search_errors(const struct qobs_kernels *kernels, const struct qobs_quantizer *quantizer,
                        const struct search_norm *norm, const float *x, const float *weight, size_t n, size_t candidates,
                        const float *scale, const float *zero_point, double *error)
{
    (void)kernels;
    for (size_t c = 0; c < candidates; c++)
        for (size_t i = 0; i < n; i++) {
            float value;
            memcpy(&value, (const unsigned char *)x + i * sizeof value, sizeof value);
            error[c] += error_of(quantizer, norm->norm, value, scale[c], zero_point ? zero_point[c] : 0) *
                        (weight ? (double)weight[i] : 1);
        }
}

/* ---- Candidates ------------------------------------------------------------------------------------------------------- */

struct search {
    const qobs_plan *plan;
    const struct search_settings *settings;
    qobs_config config;
    struct qobs_quantizer quantizer;
    struct search_norm norm;
    const float *global_scale;
    double amax; /* of all ranges, expanded */
};

/* The range of step `step`; -1: as it came in. */
static void candidate(const struct search *s, int step, double lo, double hi, double *shrunk_lo, double *shrunk_hi)
{
    const qobs_dtype dtype = s->plan->dtype;
    const bool wide = dtype == QOBS_F64;
    const double p = 1 - step / s->settings->grid, expand = s->settings->expand;
    *shrunk_lo = lo;
    *shrunk_hi = hi;
    if (step < 0)
        return;
    *shrunk_lo = qobs_round_to(dtype, qobs_round_to(dtype, lo * (wide ? expand : (double)(float)expand)) * (wide ? p : (double)(float)p));
    *shrunk_hi = qobs_round_to(dtype, qobs_round_to(dtype, hi * (wide ? expand : (double)(float)expand)) * (wide ? p : (double)(float)p));
}

static int qparams(const struct search *s, int step, double lo, double hi, float *scale, float *zero_point, qobs_error *error)
{
    const qobs_dtype dtype = s->plan->dtype;
    double min, max, z;
    double shrunk_lo, shrunk_hi, amax, unused;
    candidate(s, step, lo, hi, &shrunk_lo, &shrunk_hi);
    qobs_put_element(&min, dtype, shrunk_lo);
    qobs_put_element(&max, dtype, shrunk_hi);
    float global;
    struct range_view view = {.dtype = dtype, .n = 1, .held = qobs_held_alone(&s->config), .min = &min, .max = &max};
    view.global_scale = s->global_scale;
    if (s->settings->optimize_global_scale) {
        candidate(s, step, 0, s->amax, &unused, &amax);
        global = qobs_compressed_tensors_global_scale(&s->config, dtype, amax);
        view.global_scale = &global;
    }
    qobs_dtype scale_dtype, zero_point_dtype;
    double raw;
    qobs_convention_dtypes(&s->config, &view, &scale_dtype, &zero_point_dtype);
    const int status = qobs_convention(&s->config, &view, &raw, &z, error);
    if (status != QOBS_OK)
        return status;
    *scale = (float)qobs_qparam_at(&raw, scale_dtype, 0);
    *zero_point = (float)qobs_qparam_at(&z, zero_point_dtype, 0);
    if (view.global_scale)
        *scale /= *view.global_scale;
    return QOBS_OK;
}

/* The column of element j of run `index`. */
static int64_t column_of(const qobs_plan *plan, int64_t index, int64_t j)
{
    const struct axis *last = &plan->axis[plan->axes - 1];
    index = plan->padded ? index / 2 : index;
    if (plan->order) /* runs of one element */
        return plan->order[index % last->limit];
    return last->coarse < 0 ? j : index % plan->axis[last->coarse].extent * last->extent + j;
}

static void accumulate(const struct search *s, const unsigned char *data, const float *importance, int64_t index, size_t entries,
                       const float *scale, const float *zero_point, double *errors)
{
    qobs_run run;
    qobs_plan_run(s->plan, index, &run, NULL);
    for (int64_t j = 0; j < run.length; j++) {
        const float x = run.offset == QOBS_PADDING ? 0 : (float)qobs_element(data + run.offset + j * run.stride, s->plan->dtype);
        const float w = importance ? importance[column_of(s->plan, index, j)] : 1;
        if (s->config.nonfinite == NONFINITE_IGNORE && !isfinite(x))
            continue;
        const size_t at = (size_t)run.qparam * entries;
        qobs_search_errors(NULL, &s->quantizer, &s->norm, &x, &w, 1, entries, scale + at, zero_point + at, errors + at);
    }
}

/* ---- The search ------------------------------------------------------------------------------------------------------- */

static int prepare(struct search *s, const qobs_config *config, const qobs_plan *plan, const struct search_settings *settings,
                   const float *global_scale, qobs_error *error)
{
    *s = (struct search){.plan = plan, .settings = settings, .config = *config, .global_scale = global_scale};
    if (qobs_config_strategy(config) == STRATEGY_TENSOR_GROUP)
        s->config.scale_dtype = SCALE_NATIVE;
    if (config->type == TYPE_INT)
        qobs_quantizer_for_integers(&s->quantizer, -(INT64_C(1) << (config->num_bits - 1)),
                                    (INT64_C(1) << (config->num_bits - 1)) - 1, false);
    else
        qobs_quantizer_for_format(&s->quantizer, qobs_format_find(config->num_bits == 4 ? "fp4_e2m1" : "fp8_e4m3"));
    return qobs_search_norm(&s->norm, settings->norm, error);
}

int qobs_search_ranges(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_config *config,
                       const qobs_plan *plan, const struct search_settings *settings, const unsigned char *data,
                       const float *importance, const float *global_scale, void *min, void *max,
                       struct search_report *report, qobs_error *error)
{
    (void)kernels;
    struct search s;
    int status = prepare(&s, config, plan, settings, global_scale, error);
    if (status != QOBS_OK)
        return status;
    const size_t n = (size_t)plan->qparams, size = qobs_dtype_size(plan->dtype), entries = (size_t)settings->steps + 1;
    /* entry 0 is the range as it came in, entry i + 1 step i */
    const size_t bytes = n * entries * (sizeof(double) + 2 * sizeof(float));
    double *errors = qobs_allocate(runtime, bytes);
    if (!errors)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "search: no memory for %zu bytes", bytes);
    memset(errors, 0, bytes);
    float *scale = (float *)(errors + n * entries), *zero_point = scale + n * entries;
    unsigned char *mins = min, *maxs = max;
    for (size_t i = 0; i < n; i++) {
        const double a = fabs(qobs_element(mins + i * size, plan->dtype)), b = fabs(qobs_element(maxs + i * size, plan->dtype));
        s.amax = fmax(s.amax, fmax(a, b));
    }
    for (size_t i = 0; i < n && status == QOBS_OK; i++)
        for (size_t e = 0; e < entries && status == QOBS_OK; e++)
            status = qparams(&s, (int)e - 1, qobs_element(mins + i * size, plan->dtype), qobs_element(maxs + i * size, plan->dtype),
                             &scale[i * entries + e], &zero_point[i * entries + e], error);
    const int64_t runs = status == QOBS_OK ? qobs_plan_run_count(plan) : 0;
    for (int64_t r = 0; r < runs; r++)
        accumulate(&s, data, importance, r, entries, scale, zero_point, errors);
    struct search_report none = {0}, *to = report ? report : &none;
    int stop = status == QOBS_OK ? 0 : settings->steps;
    for (size_t i = 0; i < n && stop == 0; i++) {
        if (to->best_step)
            to->best_step[i] = -1;
        if (to->error)
            to->error[i] = errors[i * entries];
        if (to->error_before)
            to->error_before[i] = errors[i * entries];
    }
    double *best = (double *)(void *)scale; /* no longer needed; has room for a double each */
    for (size_t i = 0; i < n && status == QOBS_OK; i++)
        best[i] = (double)FLT_MAX;
    int64_t waited = 0;
    int32_t *chosen = status == QOBS_OK ? qobs_allocate(runtime, n * sizeof *chosen) : NULL;
    if (status == QOBS_OK && !chosen)
        status = qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "search: no memory for %zu bytes", n * sizeof *chosen);
    for (size_t i = 0; i < n && chosen; i++)
        chosen[i] = -1;
    for (stop = 0; status == QOBS_OK && stop < settings->steps;) {
        bool improved = false;
        for (size_t i = 0; i < n; i++) {
            const double e = errors[i * entries + (size_t)stop + 1];
            if (e < best[i]) {
                best[i] = e;
                chosen[i] = stop;
                improved = true;
            }
        }
        stop++;
        waited = improved ? 0 : waited + 1;
        if (!improved && settings->patience >= 0 && waited >= settings->patience)
            break;
    }
    to->stop_step = stop;
    for (size_t i = 0; i < n && status == QOBS_OK; i++) {
        double lo, hi;
        candidate(&s, chosen[i] < 0 ? 0 : chosen[i], qobs_element(mins + i * size, plan->dtype),
                  qobs_element(maxs + i * size, plan->dtype), &lo, &hi);
        qobs_put_element(mins + i * size, plan->dtype, lo);
        qobs_put_element(maxs + i * size, plan->dtype, hi);
        if (to->best_step)
            to->best_step[i] = chosen[i];
        if (to->error && chosen[i] >= 0)
            to->error[i] = best[i];
    }
    qobs_release(runtime, chosen, n * sizeof *chosen);
    qobs_release(runtime, errors, bytes);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}
