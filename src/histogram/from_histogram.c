/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The rules that do not search elements. Each finds a range in the histogram of an observer by one of the methods of
 * the header. */
#include "histogram/from_histogram.h"

#include "base/fpenv.h"

void qobs_read_edges(const struct histogram *h, float *edges)
{
    for (size_t i = 0; i <= h->bins; i++)
        edges[i] = h->edges ? (float)h->edges[i] : qobs_bin_edge(&h->range[0], h->bins, i);
}

bool qobs_is_empty(const struct histogram *h)
{
    for (size_t k = 0; k < h->qparams * h->bins; k++)
        if (h->mass[k] > 0)
            return false;
    return true;
}

static struct histogram_view view_of(const struct range_request *r)
{
    qobs_read_edges(r->histogram, r->edges);
    return (struct histogram_view){.bins = r->histogram->bins, .counts = r->histogram->mass, .edges = r->edges};
}

static int find_non_linear(const struct range_request *r, float *min, float *max, qobs_error *error)
{
    const struct histogram *h = r->histogram;
    float *counts = (float *)(void *)r->workspace;
    (void)error;
    for (size_t q = 0; q < h->qparams; q++) {
        const struct bin_range *range = &h->range[q];
        min[q] = range->lo;
        max[q] = range->hi;
        if (range->lo > range->hi)
            continue;
        for (size_t k = 0; k < h->bins; k++)
            counts[k] = (float)h->mass[q * h->bins + k];
        qobs_non_linear_search(counts, h->bins, range->lo, range->hi, r->rule->params.bins.numbers, counts + h->bins,
                               &min[q], &max[q]);
    }
    return QOBS_OK;
}

static int find_percentile(const struct range_request *r, float *min, float *max, qobs_error *error)
{
    const struct histogram_view view = view_of(r);
    const struct bins_params *params = &r->rule->params.bins;
    (void)error;
    qobs_percentile_quark(&view, params->symmetric, params->percentile, min, max);
    return QOBS_OK;
}

static int amax_by_percentile(const struct bins_params *params, const struct formula *formula,
                              /* NOLINTNEXTLINE(readability-non-const-parameter): that of every amax_finder */
                              const struct histogram_view *h, double *workspace, struct found_amax *found,
                              qobs_error *error)
{
    (void)formula, (void)workspace, (void)error;
    found->amax = qobs_percentile_modelopt(h, params->percentile);
    return QOBS_OK;
}

static int find_amax(const struct range_request *r, float *min, float *max, qobs_error *error)
{
    static amax_finder *const methods[] = {
        [AMAX_ENTROPY] = qobs_amax_by_entropy, [AMAX_MSE] = qobs_amax_by_mse, [AMAX_PERCENTILE] = amax_by_percentile};
    const struct histogram_view view = view_of(r);
    const struct bins_params *params = &r->rule->params.bins;
    struct found_amax found = {0};
    const int status = methods[params->method](params, r->formula, &view, r->workspace, &found, error);
    *min = 0;
    *max = found.amax;
    return status;
}

/* ---- The rules --------------------------------------------------------------------------------------------------- */

const struct range_ops qobs_range_measured = {0};
const struct range_ops qobs_range_non_linear = {.reads = READS_BINS,
                                                .histogram = &(const struct histogram_range){.find = find_non_linear}};
const struct range_ops qobs_range_percentile = {
    .reads = READS_PERCENTILE,
    .histogram =
        &(const struct histogram_range){.find = find_percentile, .found = FOUND_MIN_MAX, .empty_is_list = true}};
const struct range_ops qobs_range_mse = {
    .reads = READS_START_BIN,
    .histogram = &(const struct histogram_range){.find = find_amax, .found = FOUND_MIN_MAX, .zero_min = true}};
const struct range_ops qobs_range_amax = {.reads = READS_METHOD | READS_PERCENTILE | READS_START_BIN,
                                          .histogram =
                                              &(const struct histogram_range){.find = find_amax, .found = FOUND_AMAX}};
const struct range_ops qobs_range_never = {.histogram = &(const struct histogram_range){.find = NULL}};

static void cut_to_data(const struct range_request *r, size_t n, float *min, float *max)
{
    for (size_t q = 0; q < n; q++) {
        min[q] = min[q] < r->data_min[q] ? r->data_min[q] : min[q];
        max[q] = max[q] > r->data_max[q] ? r->data_max[q] : max[q];
    }
}

int qobs_find_range(const struct range_request *request, qobs_error *error)
{
    struct range_request r = *request;
    const struct histogram_range *ops = r.rule->ops->histogram;
    const size_t n = r.histogram->qparams, bins = r.histogram->bins, ranges_size = n * sizeof(float);
    const size_t doubles = qobs_range_workspace(bins),
                 size = doubles * sizeof(double) + 2 * ranges_size + (bins + 1) * sizeof(float);
    r.workspace = qobs_allocate(r.runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(r.workspace, "observer", size, error));
    float *const found = (float *)(void *)(r.workspace + doubles);
    r.edges = found + 2 * n;
    struct range_view ranges = {.dtype = QOBS_F32, .n = n, .rank = r.rank, .min = found, .max = found + n};
    FP_SCOPE;
    int status = QOBS_OK;
    if (r.data_min && r.data_max) { /* some rules read the range of the elements there */
        memcpy(found, r.data_min, ranges_size);
        memcpy(found + n, r.data_max, ranges_size);
    }
    if (!ops->find)
        ranges = qobs_no_ranges();
    else
        status = ops->find(&r, found, found + n, error);
    if (status == QOBS_OK && ops->found == FOUND_WITHIN_DATA && r.data_min)
        cut_to_data(&r, n, found, found + n);
    if (ops->empty_is_list && qobs_is_empty(r.histogram))
        ranges.rank = RANK_TENSOR;
    if (status == QOBS_OK && (r.scale || r.zero_point))
        status = qobs_formula_qparams(r.formula, &ranges, r.scale, r.zero_point, error);
    if (status == QOBS_OK && r.min)
        memcpy(r.min, ranges.min, ranges_size);
    if (status == QOBS_OK && r.max)
        memcpy(r.max, ranges.max, ranges_size);
    qobs_release(r.runtime, r.workspace, size);
    return qobs_finish(status, error);
}
