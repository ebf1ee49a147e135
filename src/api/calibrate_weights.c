/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Model-Optimizer's calibrate_weights (modelopt/torch/quantization/calib/histogram.py, 0.47): for each qparam a
 * histogram of magnitudes between 0 and the largest one, by numpy's rule, and an amax from it. A histogram exists while
 * its qparam is computed. */
#include <math.h>

#include "base/fpenv.h"
#include "base/split.h"
#include "base/struct_size.h"
#include "config/resolve.h"
#include "histogram/from_histogram.h"
#include "kernels/dispatch.h"
#include "number/convert.h"
#include "plan/block_reader.h"
#include "plan/make_plan.h"
#include "qobs/experimental.h"

struct weight_histograms {
    const qobs_calibrate_args *args;
    struct runtime runtime;
    struct range_rule rule;
    struct formula formula;
    qobs_plan plan;
    struct qparam_blocks blocks;
    size_t bins;
    unsigned char *largest; /* magnitude of each qparam, in the dtype of the value */
    double *workspace;      /* `doubles` of them for each part */
    size_t doubles;
};

/* ---- One qparam -------------------------------------------------------------------------------------------------- */

static void count(const struct weight_histograms *w, const struct qparam_block *block, struct histogram *h)
{
    float x[1][BLOCK_ELEMENTS];
    const double per_unit = bins_per_unit(h);
    memset(h->mass, 0, h->bins * sizeof *h->mass);
    for (int64_t at = 0; at < block->elements; at += BLOCK_ELEMENTS) {
        const size_t n = qobs_block_read(block, w->plan.dtype, w->args->value->data, at, block->elements, false, x);
        for (size_t i = 0; i < n; i++)
            h->mass[numpy_bin(h, per_unit, (double)fabsf(x[0][i]))]++;
    }
}

static int calibrate(const struct weight_histograms *w, size_t index, double *workspace, qobs_error *error)
{
    struct histogram h = {.qparams = 1, .bins = w->bins, .mass = workspace, .edges = workspace + w->bins};
    double *scratch = h.edges + w->bins + 1;
    float *edges = (float *)(void *)(scratch + qobs_range_workspace(w->bins));
    struct qparam_block block;
    struct found_amax found = {0};
    qobs_block_at(&w->blocks, index, &block);
    const size_t at = (size_t)block.qparam * qobs_dtype_size(w->plan.dtype);
    qobs_numpy_edges(&h, 0, (float)qobs_element(w->largest + at, w->plan.dtype));
    count(w, &block, &h);
    for (size_t i = 0; i <= w->bins; i++)
        edges[i] = (float)h.edges[i];
    const struct histogram_view view = {w->bins, h.mass, edges};
    if (w->rule.params.bins.method == AMAX_PERCENTILE)
        found.amax = qobs_percentile_modelopt(&view, w->rule.params.bins.percentile);
    else
        RETURN_IF_FAILED(qobs_amax_by_mse(&w->rule.params.bins, &w->formula, &view, scratch, &found, error));
    w->args->amax[block.qparam] = found.amax;
    return QOBS_OK;
}

/* Settings are wrong for all qparams or for none, and the first one has been computed. */
static void calibrate_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct weight_histograms *w = argument;
    for (int64_t i = from; i < to; i++)
        calibrate(w, (size_t)i, w->workspace + (size_t)part * w->doubles, NULL);
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

static int calibrate_all(struct weight_histograms *w, qobs_error *error)
{
    static const struct split_rule rule = {.min_part = 1 << 16, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS};
    const size_t qparams = (size_t)w->plan.qparams, element = qobs_dtype_size(w->plan.dtype);
    struct nonfinite_count nonfinite = {0};
    qobs_blocks_of(&w->blocks, &w->plan, 1);
    const int64_t work = w->plan.value.elements + (int64_t)(qparams * w->bins);
    const struct split split = qobs_split(&w->runtime, &rule, (int64_t)w->blocks.count, work, 0);
    w->doubles = 2 * w->bins + 1 + qobs_range_workspace(w->bins) + (w->bins + 2) / 2;
    const size_t parts = (size_t)split.parts * w->doubles * sizeof(double), size = parts + 2 * qparams * element;
    w->workspace = qobs_allocate(&w->runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(w->workspace, "value", size, error));
    unsigned char *smallest = (unsigned char *)w->workspace + parts;
    w->largest = smallest + qparams * element;
    int status = qobs_reduce_absmax(&w->runtime, qobs_kernels_active(), &w->plan, w->args->value->data,
                                    NONFINITE_REFUSE, smallest, w->largest, &nonfinite, error);
    if (status == QOBS_OK)
        status = calibrate(w, 0, w->workspace, error);
    if (status == QOBS_OK)
        qobs_split_run(&w->runtime, &split, calibrate_part, w);
    qobs_release(&w->runtime, w->workspace, size);
    return status;
}

static int check(const qobs_calibrate_args *a, struct range_rule *rule, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_config_check(a->config, error));
    qobs_resolve_range(a->config, rule);
    if (!(rule->ops->reads & READS_METHOD))
        return qobs_invalid(error, "config: is %s, allowed is modelopt.HistogramCalibrator", a->config->preset->name);
    if (rule->params.bins.method == AMAX_ENTROPY)
        return qobs_invalid(error, "method: is entropy, allowed for weights are percentile and mse");
    return QOBS_OK;
}

int qobs_calibrate_weights(const qobs_calibrate_args *args, qobs_error *error)
{
    struct granularity granularity;
    struct reduction reduction;
    qobs_calibrate_args a;
    struct weight_histograms w = {.args = &a};
    RETURN_IF_FAILED(ARGS_READ(qobs_calibrate_args, &a, args, runtime, error));
    RETURN_IF_FAILED(check(&a, &w.rule, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&w.runtime, a.runtime, error));
    qobs_resolve_granularity(a.config, &granularity);
    granularity.ops = &qobs_granularity_modelopt_axes;
    RETURN_IF_FAILED(qobs_plan_make(&w.plan, &granularity, a.value, NULL, &w.runtime, error));
    w.plan.as_f32 = w.plan.dtype == QOBS_F64; /* bins are floats: what is beyond them is infinite */
    qobs_resolve_reduction(a.config, &reduction);
    qobs_resolve_formula(a.config, &w.formula);
    w.bins = reduction.histogram.params.bins;
    int status = array_check("amax", a.amax, a.amax_size, (size_t)w.plan.qparams * sizeof *a.amax, error);
    if (status == QOBS_OK && w.plan.value.elements == 0)
        status = qobs_fail(error, QOBS_ERROR_NO_DATA, "value: has no elements");
    FP_SCOPE;
    if (status == QOBS_OK)
        status = calibrate_all(&w, error);
    qobs_plan_unmake(&w.plan);
    return qobs_finish(status, error);
}
