/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Range finders on the caller's own histogram. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "config/stages.h"
#include "number/convert.h"
#include "range/from_histogram.h"
#include "base/tensor.h"

/* ---- The caller's histogram --------------------------------------------------------------------------------------- */

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

/* Whose histograms it is for, by one method, and where its range goes. */
struct request {
    const qobs_config *config;
    const char *method;
    int families;
    const qobs_tensor *histogram, *bin_edges;
    float *min, *max;
};

static int check_request(const struct request *r, qobs_error *error)
{
    const int status = qobs_config_check(r->config, error);
    if (status != QOBS_OK)
        return status;
    if (!(r->config->preset->family & r->families))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "config: %s is not for %s, allowed are presets of %s", r->method,
                         r->config->preset->name,
                         r->families == FAMILY_MODELOPT     ? "trt"
                         : r->families == FAMILY_TORCH ? "torch"
                                                       : "quark and trt");
    if (!r->min || !r->max)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", r->min ? "max" : "min");
    return QOBS_OK;
}

static int check_histogram(struct view *counts, struct view *edges, const qobs_tensor *histogram,
                           const qobs_tensor *bin_edges, qobs_error *error)
{
    int status = qobs_view_of_tensor(counts, histogram, "histogram", error);
    if (status == QOBS_OK)
        status = qobs_view_of_tensor(edges, bin_edges, "bin_edges", error);
    if (status != QOBS_OK)
        return status;
    if (counts->ndim != 1 || counts->elements < 1)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "histogram: has %d dimensions and %lld elements, allowed are 1 and above 0", counts->ndim,
                         (long long)counts->elements);
    if (counts->dtype != QOBS_F32 && counts->dtype != QOBS_F64 && counts->dtype != QOBS_I32 && counts->dtype != QOBS_I64)
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
        const double count = number_at(counts, i), edge = number_at(edges, i), next = number_at(edges, i + 1);
        if (!(count >= 0) || isinf(count))
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "histogram: [%lld] is %g, allowed are finite numbers from 0", (long long)i, count);
        if (!(edge <= next) || isinf(edge) || isinf(next))
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "bin_edges: [%lld] is %g and the next one %g, they must be finite and ascend", (long long)i,
                             edge, next);
    }
    return QOBS_OK;
}

/* The histogram as range finders want it, and room for what they make of it, in one piece of memory. */
struct workspace {
    struct runtime runtime;
    struct histogram_view histogram;
    double *workspace;
    void *memory;
    size_t size;
};

/* Checks the request and makes its workspace. */
static int open_workspace(struct workspace *w, const struct request *request, const qobs_runtime *runtime, qobs_error *error)
{
    struct view counts, edges;
    int status = check_request(request, error);
    if (status == QOBS_OK)
        status = check_histogram(&counts, &edges, request->histogram, request->bin_edges, error);
    if (status == QOBS_OK)
        status = qobs_runtime_resolve(&w->runtime, runtime, error);
    if (status != QOBS_OK)
        return status;
    const size_t bins = (size_t)counts.elements, workspace = bins + qobs_range_workspace(bins);
    w->size = workspace * sizeof(double) + (bins + 1) * sizeof(float);
    double *numbers = w->memory = qobs_allocate(&w->runtime, w->size);
    if (!numbers)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "histogram: no memory for %zu bytes", w->size);
    w->workspace = numbers + bins;
    float *copy = (float *)(void *)(numbers + workspace);
    for (size_t i = 0; i < bins; i++)
        numbers[i] = number_at(&counts, (int64_t)i);
    for (size_t i = 0; i <= bins; i++)
        copy[i] = (float)number_at(&edges, (int64_t)i);
    w->histogram = (struct histogram_view){.bins = bins, .counts = numbers, .edges = copy};
    return QOBS_OK;
}

static void close_workspace(struct workspace *w) { qobs_release(&w->runtime, w->memory, w->size); }

/* Model-Optimizer's magnitude as a range. */
static float quant_min(const qobs_config *config, float amax) { return config->is_unsigned ? 0 : -amax; }

/* By a method that looks for the magnitude, and takes stride and start_bin. */
static int find_amax(const struct request *r, int64_t stride, int64_t start_bin, qobs_amax_finder *find,
                     const qobs_runtime *runtime, qobs_error *error)
{
    struct workspace w;
    int status = open_workspace(&w, r, runtime, error);
    if (status != QOBS_OK)
        return status;
    const fp_mode mode = fp_enter();
    struct range_rule rule;
    struct formula formula;
    qobs_resolve_range(r->config, &rule);
    qobs_resolve_formula(r->config, &formula);
    rule.params.bins.stride = stride;
    rule.params.bins.start_bin = start_bin;
    status = find(&rule.params.bins, &formula, &w.histogram, w.workspace, r->max, error);
    fp_leave(mode);
    close_workspace(&w);
    if (status != QOBS_OK)
        return status;
    *r->min = r->config->preset->family == FAMILY_MODELOPT ? quant_min(r->config, *r->max) : 0;
    return qobs_succeed(error);
}

/* ---- Public ------------------------------------------------------------------------------------------------------- */

int qobs_range_by_percentile(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges,
                             double percentile, float *min, float *max, const qobs_runtime *runtime, qobs_error *error)
{
    const struct request request = {config, "percentile", FAMILY_QUARK | FAMILY_MODELOPT, histogram, bin_edges, min, max};
    struct workspace w;
    if (!(percentile >= 0 && percentile <= 100))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "percentile: is %g, allowed are numbers from 0 to 100",
                         percentile);
    const int status = open_workspace(&w, &request, runtime, error);
    if (status != QOBS_OK)
        return status;
    const fp_mode mode = fp_enter();
    if (config->preset->family == FAMILY_MODELOPT) {
        *max = qobs_percentile_modelopt(&w.histogram, percentile);
        *min = quant_min(config, *max);
    } else {
        qobs_percentile(&w.histogram, config->symmetric, percentile, min, max);
    }
    fp_leave(mode);
    close_workspace(&w);
    return qobs_succeed(error);
}

int qobs_range_by_l2_norm(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges, float *min,
                          float *max, const qobs_runtime *runtime, qobs_error *error)
{
    const struct request request = {config, "l2_norm", FAMILY_TORCH, histogram, bin_edges, min, max};
    struct workspace w;
    const int status = open_workspace(&w, &request, runtime, error);
    if (status != QOBS_OK)
        return status;
    struct range_rule rule;
    qobs_resolve_range(config, &rule);
    const size_t bins = w.histogram.bins;
    float *counts = (float *)(void *)w.workspace;
    const fp_mode mode = fp_enter();
    for (size_t i = 0; i < bins; i++)
        counts[i] = (float)w.histogram.counts[i];
    qobs_non_linear_search(counts, bins, w.histogram.edges[0], w.histogram.edges[bins], rule.params.bins.numbers,
                           counts + bins, min, max);
    fp_leave(mode);
    close_workspace(&w);
    return qobs_succeed(error);
}

int qobs_range_by_entropy(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges,
                          int64_t stride, int64_t start_bin, float *min, float *max, const qobs_runtime *runtime,
                          qobs_error *error)
{
    const struct request request = {config, "entropy", FAMILY_MODELOPT, histogram, bin_edges, min, max};
    return find_amax(&request, stride, start_bin, qobs_amax_by_entropy, runtime, error);
}

int qobs_range_by_mse(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges, int64_t stride,
                      int64_t start_bin, float *min, float *max, const qobs_runtime *runtime, qobs_error *error)
{
    const struct request request = {config, "mse", FAMILY_QUARK | FAMILY_MODELOPT, histogram, bin_edges, min, max};
    return find_amax(&request, stride, start_bin, qobs_amax_by_mse, runtime, error);
}
