/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The public range finders: they read a histogram of the caller. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "base/tensor.h"
#include "config/stages.h"
#include "number/convert.h"
#include "qobs/stateless.h"
#include "range/from_histogram.h"

/* ---- The caller's histogram -------------------------------------------------------------------------------------- */

/* Element i of a 1-dimensional view, as a double. */
static double number_at(const struct view *v, int64_t i)
{
    const unsigned char *at = v->data + i * v->strides[0];
    int32_t word;
    int64_t wide;
    switch (v->dtype) {
    case QOBS_I32:
        memcpy(&word, at, sizeof word);
        return word;
    case QOBS_I64:
        memcpy(&wide, at, sizeof wide);
        return (double)wide;
    default:
        return qobs_element(at, v->dtype);
    }
}

/* The arguments of a call. */
struct finder_call {
    const qobs_config *config;
    const char *method;
    int families; /* that have the method */
    const qobs_tensor *histogram, *bin_edges;
    float *min, *max;
    bool end_edges; /* the method uses only the first and the last edge */
};

static int check_call(const struct finder_call *r, qobs_error *error)
{
    const int status = qobs_config_check(r->config, error);
    if (status != QOBS_OK)
        return status;
    if (!(r->config->preset->family & r->families))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "config: %s is not for %s, allowed are presets of %s",
                         r->method, r->config->preset->name,
                         r->families == FAMILY_MODELOPT ? "modelopt"
                         : r->families == FAMILY_TORCH  ? "torch"
                                                        : "quark and modelopt");
    if (!r->min || !r->max)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", r->min ? "max" : "min");
    return QOBS_OK;
}

/* Edges ascend and are finite: each and the next one, or the first and the last one. */
static int check_edges(const struct view *edges, bool end_edges, qobs_error *error)
{
    const int64_t last = edges->elements - 1, step = end_edges ? last : 1;
    for (int64_t i = 0; i < last; i += step) {
        const double edge = number_at(edges, i), next = number_at(edges, i + step);
        if (!(edge <= next) || isinf(edge) || isinf(next))
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "bin_edges: [%lld] is %g and [%lld] is %g, they must be finite and ascend", (long long)i,
                             edge, (long long)(i + step), next);
    }
    return QOBS_OK;
}

static int check_histogram(struct view *counts, struct view *edges, const struct finder_call *call, qobs_error *error)
{
    int status = qobs_view_of_tensor(counts, call->histogram, "histogram", error);
    if (status == QOBS_OK)
        status = qobs_view_of_tensor(edges, call->bin_edges, "bin_edges", error);
    if (status != QOBS_OK)
        return status;
    if (counts->ndim != 1 || counts->elements < 1)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "histogram: has %d dimensions and %lld elements, allowed are 1 and above 0", counts->ndim,
                         (long long)counts->elements);
    if (counts->dtype != QOBS_F32 && counts->dtype != QOBS_F64 && counts->dtype != QOBS_I32 &&
        counts->dtype != QOBS_I64)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "histogram: dtype is %s, allowed are F32, F64, I32, I64",
                         qobs_dtype_name(counts->dtype));
    if (edges->dtype != QOBS_F32)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "bin_edges: dtype is %s, allowed is F32",
                         qobs_dtype_name(edges->dtype));
    if (edges->ndim != 1 || edges->elements != counts->elements + 1)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "bin_edges: has %d dimensions and %lld elements, a histogram of %lld bins needs 1 and %lld",
                         edges->ndim, (long long)edges->elements, (long long)counts->elements,
                         (long long)counts->elements + 1);
    for (int64_t i = 0; i < counts->elements; i++) {
        const double count = number_at(counts, i);
        if (!(count >= 0) || isinf(count))
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "histogram: [%lld] is %g, allowed are finite numbers from 0", (long long)i, count);
    }
    return check_edges(edges, call->end_edges, error);
}

/* The resolved call. */
struct finder {
    struct runtime runtime;
    struct range_rule rule;
    struct formula formula;
    struct histogram_view histogram;
    double *workspace; /* qobs_range_workspace() doubles */
    void *memory;      /* of histogram and workspace */
    size_t size;
};

static int open_finder(struct finder *f, const struct finder_call *call, const qobs_runtime *runtime, qobs_error *error)
{
    struct view counts, edges;
    int status = check_call(call, error);
    if (status == QOBS_OK)
        status = check_histogram(&counts, &edges, call, error);
    if (status == QOBS_OK)
        status = qobs_runtime_resolve(&f->runtime, runtime, error);
    if (status != QOBS_OK)
        return status;
    qobs_resolve_range(call->config, &f->rule);
    qobs_resolve_formula(call->config, &f->formula);
    const size_t bins = (size_t)counts.elements, doubles = bins + qobs_range_workspace(bins);
    f->size = doubles * sizeof(double) + (bins + 1) * sizeof(float);
    double *numbers = f->memory = qobs_allocate(&f->runtime, f->size);
    if (!numbers)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "histogram: no memory for %zu bytes", f->size);
    f->workspace = numbers + bins;
    float *copy = (float *)(void *)(numbers + doubles);
    for (size_t i = 0; i < bins; i++)
        numbers[i] = number_at(&counts, (int64_t)i);
    for (size_t i = 0; i <= bins; i++)
        copy[i] = (float)number_at(&edges, (int64_t)i);
    f->histogram = (struct histogram_view){.bins = bins, .counts = numbers, .edges = copy};
    return QOBS_OK;
}

static void close_finder(struct finder *f) { qobs_release(&f->runtime, f->memory, f->size); }

/* The minimum of a range whose maximum is amax. */
static float min_of(const qobs_config *config, float amax)
{
    return config->preset->family == FAMILY_QUARK || config->is_unsigned ? 0 : -amax;
}

/* Calls a method that finds an amax. */
static int find_amax(const struct finder_call *call, int64_t stride, int64_t start_bin, qobs_amax_finder *find,
                     const qobs_runtime *runtime, qobs_error *error)
{
    struct finder f;
    int status = open_finder(&f, call, runtime, error);
    if (status != QOBS_OK)
        return status;
    f.rule.params.bins.stride = stride;
    f.rule.params.bins.start_bin = start_bin;
    const fp_mode mode = fp_enter();
    status = find(&f.rule.params.bins, &f.formula, &f.histogram, f.workspace, call->max, error);
    fp_leave(mode);
    close_finder(&f);
    if (status != QOBS_OK)
        return status;
    *call->min = min_of(call->config, *call->max);
    return qobs_succeed(error);
}

/* ---- Public ------------------------------------------------------------------------------------------------------ */

int qobs_range_by_percentile(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges,
                             double percentile, float *min, float *max, const qobs_runtime *runtime, qobs_error *error)
{
    const struct finder_call call = {config, "percentile", FAMILY_QUARK | FAMILY_MODELOPT, histogram, bin_edges, min,
                                     max,    false};
    struct finder f;
    if (!(percentile >= 0 && percentile <= 100))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "percentile: is %g, allowed are numbers from 0 to 100",
                         percentile);
    const int status = open_finder(&f, &call, runtime, error);
    if (status != QOBS_OK)
        return status;
    const fp_mode mode = fp_enter();
    if (config->preset->family == FAMILY_MODELOPT) {
        *max = qobs_percentile_modelopt(&f.histogram, percentile);
        *min = min_of(config, *max);
    } else {
        qobs_percentile(&f.histogram, config->symmetric, percentile, min, max);
    }
    fp_leave(mode);
    close_finder(&f);
    return qobs_succeed(error);
}

int qobs_range_by_l2_norm(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges,
                          float *min, float *max, const qobs_runtime *runtime, qobs_error *error)
{
    const struct finder_call call = {config, "l2_norm", FAMILY_TORCH, histogram, bin_edges, min, max, true};
    struct finder f;
    const int status = open_finder(&f, &call, runtime, error);
    if (status != QOBS_OK)
        return status;
    const size_t bins = f.histogram.bins;
    float *counts = (float *)(void *)f.workspace;
    const fp_mode mode = fp_enter();
    for (size_t i = 0; i < bins; i++)
        counts[i] = (float)f.histogram.counts[i];
    qobs_non_linear_search(counts, bins, f.histogram.edges[0], f.histogram.edges[bins], f.rule.params.bins.numbers,
                           counts + bins, min, max);
    fp_leave(mode);
    close_finder(&f);
    return qobs_succeed(error);
}

int qobs_range_by_entropy(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges,
                          int64_t stride, int64_t start_bin, float *min, float *max, const qobs_runtime *runtime,
                          qobs_error *error)
{
    const struct finder_call call = {config, "entropy", FAMILY_MODELOPT, histogram, bin_edges, min, max, false};
    return find_amax(&call, stride, start_bin, qobs_amax_by_entropy, runtime, error);
}

int qobs_range_by_mse(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges,
                      int64_t stride, int64_t start_bin, float *min, float *max, const qobs_runtime *runtime,
                      qobs_error *error)
{
    const struct finder_call call = {config, "mse", FAMILY_QUARK | FAMILY_MODELOPT, histogram, bin_edges, min,
                                     max,    false};
    return find_amax(&call, stride, start_bin, qobs_amax_by_mse, runtime, error);
}
