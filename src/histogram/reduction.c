/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "stages/reduction.h"

#include <math.h>

#include "base/fpenv.h"
#include "histogram/collect.h"
#include "histogram/histogram.h"
#include "measure/accumulators.h"
#include "number/convert.h"
#include "plan/block_reader.h"

static void convert(qobs_dtype from, const unsigned char *x, size_t n, qobs_dtype to, void *out)
{
    for (size_t i = 0; i < n; i++)
        qobs_put_element((unsigned char *)out + i * qobs_dtype_size(to), to,
                         qobs_element(x + i * qobs_dtype_size(from), from));
}

/* Ranges in the plan's dtype, converted if the reduction wants another. */
static int measure(const struct reduction *r, const struct batch *b, struct histogram *histogram, void *min, void *max,
                   struct nonfinite_count *nonfinite, qobs_error *error)
{
    const qobs_plan *plan = b->plan;
    const qobs_dtype to = qobs_reduced_dtype(r, plan->dtype);
    (void)histogram;
    if (to == plan->dtype)
        return r->ops->reduce(b->runtime, b->kernels, plan, b->data, r->nonfinite, min, max, nonfinite, error);
    const size_t n = (size_t)plan->qparams, half = (n * qobs_dtype_size(plan->dtype) + 63) / 64 * 64;
    unsigned char *native = qobs_allocate(b->runtime, 2 * half);
    RETURN_IF_FAILED(qobs_require_memory(native, "observer", 2 * half, error));
    const int status =
        r->ops->reduce(b->runtime, b->kernels, plan, b->data, r->nonfinite, native, native + half, nonfinite, error);
    if (status == QOBS_OK) {
        convert(plan->dtype, native, n, to, min);
        convert(plan->dtype, native + half, n, to, max);
    }
    qobs_release(b->runtime, native, 2 * half);
    return status;
}

static int measure_histogram(const struct reduction *r, const struct batch *b, struct histogram *histogram, void *min,
                             void *max, struct nonfinite_count *nonfinite, qobs_error *error)
{
    return r->histogram.ops->accept(&r->histogram, b, histogram, min, max, nonfinite, error);
}

const struct reduction_ops qobs_reduction_none = {.measure = NULL};
const struct reduction_ops qobs_reduction_minmax = {.measure = measure, .reduce = qobs_reduce_minmax};
const struct reduction_ops qobs_reduction_absmax = {.measure = measure, .reduce = qobs_reduce_absmax};
const struct reduction_ops qobs_reduction_absmax_f32 = {
    .measure = measure, .reduce = qobs_reduce_absmax, .f64_in_f32 = true};
const struct reduction_ops qobs_reduction_histogram_torch = {.measure = measure_histogram,
                                                             .histogram = &qobs_histogram_torch};
const struct reduction_ops qobs_reduction_histogram_quark = {.measure = measure_histogram,
                                                             .histogram = &qobs_histogram_quark};
const struct reduction_ops qobs_reduction_histogram_log2 = {.measure = measure_histogram,
                                                            .histogram = &qobs_histogram_log2};
const struct reduction_ops qobs_reduction_histogram_ort = {.measure = measure_histogram,
                                                           .histogram = &qobs_histogram_ort};
const struct reduction_ops qobs_reduction_histogram_modelopt = {.measure = measure_histogram,
                                                                .histogram = &qobs_histogram_modelopt};

/* ---- Means ------------------------------------------------------------------------------------------------------- */

/* The mean of the elements of every qparam, or of their magnitudes. Sums are double, in 16 lanes, in an order that
 * depends on the shape alone; the mean is rounded to the dtype of the plan. Upstream's sums are float. */

enum { LANES = 16 };

struct mean {
    const struct batch *batch;
    struct qparam_blocks blocks;
    bool magnitude, finite_only;
    unsigned char *min, *max;
};

/* Adds n elements, which it may change; there is memory for whole vectors of lanes. Returns how many count. */
static int64_t add_elements(const struct mean *m, float *x, size_t n, double lane[LANES])
{
    int64_t counted = (int64_t)n;
    for (size_t i = 0; m->finite_only && i < n; i++) {
        counted -= !isfinite(x[i]);
        x[i] = isfinite(x[i]) ? x[i] : 0;
    }
    for (size_t i = 0; m->magnitude && i < n; i++)
        x[i] = fabsf(x[i]);
    for (; n % LANES != 0; n++)
        x[n] = 0;
    for (size_t i = 0; i < n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += (double)x[i + j];
    return counted;
}

static void put(const struct mean *m, size_t qparam, double mean)
{
    const qobs_dtype dtype = m->batch->plan->dtype;
    const size_t at = qparam * qobs_dtype_size(dtype);
    const double value = isnan(mean) ? (double)NAN : mean; /* its sign would be the machine's */
    qobs_put_element(m->min + at, dtype, m->magnitude ? -value : value);
    qobs_put_element(m->max + at, dtype, value);
}

static void mean_of_block(void *argument, size_t index)
{
    const struct mean *m = argument;
    struct qparam_block block;
    float x[BLOCK_QPARAMS][BLOCK_ELEMENTS];
    double lane[BLOCK_QPARAMS][LANES] = {{0}};
    int64_t counted[BLOCK_QPARAMS] = {0};
    FP_SCOPE;
    qobs_block_at(&m->blocks, index, &block);
    for (int64_t first = 0; first < block.elements; first += BLOCK_ELEMENTS) {
        const size_t n =
            qobs_block_read(&block, m->batch->plan->dtype, m->batch->data, first, block.elements, false, x);
        for (int q = 0; q < block.qparams; q++)
            counted[q] += add_elements(m, x[q], n, lane[q]);
    }
    for (int q = 0; q < block.qparams; q++) {
        double sum = 0;
        for (int i = 0; i < LANES; i++)
            sum += lane[q][i];
        put(m, block.qparam + (size_t)q * block.next, counted[q] > 0 ? sum / (double)counted[q] : 0);
    }
}

/* The ranges are (mean, mean), or (-mean, mean) of magnitudes. */
static int measure_means(const struct reduction *r, const struct batch *b, struct histogram *histogram, void *min,
                         void *max, struct nonfinite_count *nonfinite, qobs_error *error)
{
    (void)histogram;
    RETURN_IF_FAILED(
        qobs_reduce_minmax(b->runtime, b->kernels, b->plan, b->data, r->nonfinite, min, max, nonfinite, error));
    struct mean m = {.batch = b,
                     .magnitude = r->ops->magnitudes,
                     .finite_only = r->nonfinite == NONFINITE_IGNORE,
                     .min = min,
                     .max = max};
    qobs_blocks_of(&m.blocks, b->plan, BLOCK_QPARAMS);
    qobs_parallel_for(b->runtime, mean_of_block, &m, m.blocks.count);
    return QOBS_OK;
}

const struct reduction_ops qobs_reduction_mean = {.measure = measure_means};
const struct reduction_ops qobs_reduction_mean_magnitude = {.measure = measure_means, .magnitudes = true};
