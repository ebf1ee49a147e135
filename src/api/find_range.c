/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The public range finders: they read a histogram of the caller. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "base/struct_size.h"
#include "base/tensor.h"
#include "config/stages.h"
#include "number/convert.h"
#include "qobs/stateless.h"
#include "histogram/from_histogram.h"

/* ---- The caller's histogram -------------------------------------------------------------------------------------- */

/* A call: its arguments, and what the method needs. */
struct finder_call {
    const char *method;
    enum range_finder finder;
    const char *allowed; /* families that have the method */
    bool uses_all_edges; /* otherwise the first and the last one */
    qobs_range_args args;
};

static int check_call(struct finder_call *r, const qobs_range_args *args, const qobs_range *range, qobs_error *error)
{
    RETURN_IF_FAILED(ARGS_READ(qobs_range_args, &r->args, args, runtime, error));
    RETURN_IF_FAILED(out_check("range", range, SIZE_THROUGH(qobs_range, score), error));
    const qobs_config *config = r->args.config;
    if (!config)
        return qobs_invalid(error, "config: is NULL");
    RETURN_IF_FAILED(qobs_config_check(config, error));
    if (qobs_config_has_finder(config, r->finder))
        return QOBS_OK;
    return qobs_invalid(error, "config: %s is not for %s, allowed are presets of %s", r->method, config->preset->name,
                        r->allowed);
}

static int check_edge(const struct view *edges, int64_t i, int64_t next, qobs_error *error)
{
    const double edge = qobs_number_at(edges, i), other = qobs_number_at(edges, next);
    if (edge <= other && !isinf(edge) && !isinf(other))
        return QOBS_OK;
    return qobs_invalid(error, "bin_edges: [%lld] is %g and [%lld] is %g, they must be finite and ascend", (long long)i,
                        edge, (long long)next, other);
}

static int check_histogram(struct view *counts, struct view *edges, const struct finder_call *call, qobs_error *error)
{
    int status = qobs_view_of_tensor(counts, call->args.histogram, "histogram", error);
    if (status == QOBS_OK)
        status = qobs_view_of_tensor(edges, call->args.bin_edges, "bin_edges", error);
    if (status != QOBS_OK)
        return status;
    if (counts->ndim != 1 || counts->elements < 1)
        return qobs_invalid(error, "histogram: has %d dimensions and %lld elements, allowed are 1 and above 0",
                            counts->ndim, (long long)counts->elements);
    if (counts->dtype != QOBS_F32 && counts->dtype != QOBS_F64 && counts->dtype != QOBS_I32 &&
        counts->dtype != QOBS_I64)
        return qobs_invalid(error, "histogram: dtype is %s, allowed are F32, F64, I32, I64",
                            qobs_dtype_name(counts->dtype));
    if (edges->dtype != QOBS_F32)
        return qobs_invalid(error, "bin_edges: dtype is %s, allowed is F32", qobs_dtype_name(edges->dtype));
    if (edges->ndim != 1 || edges->elements != counts->elements + 1)
        return qobs_invalid(
            error, "bin_edges: has %d dimensions and %lld elements, a histogram of %lld bins needs 1 and %lld",
            edges->ndim, (long long)edges->elements, (long long)counts->elements, (long long)counts->elements + 1);
    for (int64_t i = 0; i < counts->elements; i++) {
        const double count = qobs_number_at(counts, i);
        if (!(count >= 0) || isinf(count))
            return qobs_invalid(error, "histogram: [%lld] is %g, allowed are finite numbers from 0", (long long)i,
                                count);
    }
    for (int64_t i = 0; call->uses_all_edges && status == QOBS_OK && i < counts->elements; i++)
        status = check_edge(edges, i, i + 1, error);
    return status == QOBS_OK ? check_edge(edges, 0, counts->elements, error) : status;
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

static int open_finder(struct finder *f, struct finder_call *call, const qobs_range_args *args, const qobs_range *range,
                       qobs_error *error)
{
    struct view counts, edges;
    RETURN_IF_FAILED(check_call(call, args, range, error));
    RETURN_IF_FAILED(check_histogram(&counts, &edges, call, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&f->runtime, call->args.runtime, error));
    qobs_resolve_range(call->args.config, &f->rule);
    qobs_resolve_formula(call->args.config, &f->formula);
    const size_t bins = (size_t)counts.elements, doubles = bins + qobs_range_workspace(bins);
    f->size = doubles * sizeof(double) + (bins + 1) * sizeof(float);
    double *numbers = f->memory = qobs_allocate(&f->runtime, f->size);
    if (!numbers)
        return qobs_no_memory(error, "histogram: no memory for %zu bytes", f->size);
    f->workspace = numbers + bins;
    float *copy = (float *)(void *)(numbers + doubles);
    for (size_t i = 0; i < bins; i++)
        numbers[i] = qobs_number_at(&counts, (int64_t)i);
    for (size_t i = 0; i <= bins; i++)
        copy[i] = (float)qobs_number_at(&edges, (int64_t)i);
    f->histogram = (struct histogram_view){.bins = bins, .counts = numbers, .edges = copy};
    return QOBS_OK;
}

/* Edge i; those of equal bins if the method uses only the first and the last one. */
static double edge_at(const struct finder *f, bool all, int64_t i)
{
    const float *edges = f->histogram.edges;
    const double first = edges[0], last = edges[f->histogram.bins];
    return all ? edges[i] : first + (last - first) * ((double)i / (double)f->histogram.bins);
}

/* Writes the result, with the bins that hold the ends of the range, and releases the memory of the call. */
static int close_finder(struct finder *f, const struct finder_call *call, int status, qobs_range found,
                        qobs_range *range, qobs_error *error)
{
    const int64_t bins = (int64_t)f->histogram.bins;
    while (found.first_bin + 1 < bins && edge_at(f, call->uses_all_edges, found.first_bin + 1) <= found.min)
        found.first_bin++;
    found.last_bin = found.first_bin;
    while (found.last_bin + 1 < bins && edge_at(f, call->uses_all_edges, found.last_bin + 1) < found.max)
        found.last_bin++;
    qobs_release(&f->runtime, f->memory, f->size);
    if (status != QOBS_OK)
        return status;
    out_copy(range, &found, sizeof found);
    return qobs_succeed(error);
}

/* The minimum of a range whose maximum is amax. */
static float min_of(const struct finder *f, float amax) { return f->rule.params.bins.from_zero ? 0 : -amax; }

/* Calls a method that finds an amax. */
static int find_amax(struct finder_call *call, amax_finder *find, const qobs_range_args *args, qobs_range *range,
                     qobs_error *error)
{
    struct finder f;
    struct found_amax found = {0};
    RETURN_IF_FAILED(open_finder(&f, call, args, range, error));
    f.rule.params.bins.stride = call->args.stride;
    f.rule.params.bins.start_bin = call->args.start_bin;
    const fp_mode mode = fp_enter();
    const int status = find(&f.rule.params.bins, &f.formula, &f.histogram, f.workspace, &found, error);
    fp_leave(mode);
    const qobs_range result = {.min = min_of(&f, found.amax), .max = found.amax, .score = found.score};
    return close_finder(&f, call, status, result, range, error);
}

/* The share of the counts in the bins from the one that holds min to the one that ends at max, in percent. */
static double share_within(const struct histogram_view *h, float min, float max)
{
    double all = 0, within = 0;
    for (size_t i = 0; i < h->bins; i++) {
        all += h->counts[i];
        within += h->edges[i + 1] > min && h->edges[i] < max ? h->counts[i] : 0;
    }
    return all > 0 ? 100 * within / all : 0;
}

/* ---- Public ------------------------------------------------------------------------------------------------------ */

int qobs_range_by_percentile(const qobs_range_args *args, qobs_range *range, qobs_error *error)
{
    struct finder_call call = {"percentile", FINDER_PERCENTILE, "quark and modelopt", true, {0}};
    struct finder f;
    qobs_range found = {0};
    RETURN_IF_FAILED(open_finder(&f, &call, args, range, error));
    const double percentile = call.args.percentile;
    if (!(percentile >= 0 && percentile <= 100))
        return close_finder(&f, &call,
                            qobs_invalid(error, "percentile: is %g, allowed are numbers from 0 to 100", percentile),
                            found, range, error);
    const fp_mode mode = fp_enter();
    if (f.rule.params.bins.of_magnitudes) {
        found.max = qobs_percentile_modelopt(&f.histogram, percentile);
        found.min = min_of(&f, found.max);
    } else {
        qobs_percentile(&f.histogram, f.rule.params.bins.symmetric, percentile, &found.min, &found.max);
    }
    found.score = share_within(&f.histogram, found.min, found.max);
    fp_leave(mode);
    return close_finder(&f, &call, QOBS_OK, found, range, error);
}

int qobs_range_by_l2_norm(const qobs_range_args *args, qobs_range *range, qobs_error *error)
{
    struct finder_call call = {"l2_norm", FINDER_L2_NORM, "torch", false, {0}};
    struct finder f;
    qobs_range found = {0};
    RETURN_IF_FAILED(open_finder(&f, &call, args, range, error));
    const size_t bins = f.histogram.bins;
    float *counts = (float *)(void *)f.workspace;
    const fp_mode mode = fp_enter();
    for (size_t i = 0; i < bins; i++)
        counts[i] = (float)f.histogram.counts[i];
    found.score = qobs_non_linear_search(counts, bins, f.histogram.edges[0], f.histogram.edges[bins],
                                         f.rule.params.bins.numbers, counts + bins, &found.min, &found.max);
    fp_leave(mode);
    return close_finder(&f, &call, QOBS_OK, found, range, error);
}

int qobs_range_by_entropy(const qobs_range_args *args, qobs_range *range, qobs_error *error)
{
    struct finder_call call = {"entropy", FINDER_ENTROPY, "modelopt", true, {0}};
    return find_amax(&call, qobs_amax_by_entropy, args, range, error);
}

int qobs_range_by_mse(const qobs_range_args *args, qobs_range *range, qobs_error *error)
{
    struct finder_call call = {"mse", FINDER_MSE, "quark and modelopt", true, {0}};
    return find_amax(&call, qobs_amax_by_mse, args, range, error);
}
