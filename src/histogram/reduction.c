/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "histogram/reduction.h"

#include "base/error.h"
#include "histogram/collect.h"
#include "measure/accumulators.h"
#include "measure/reduce.h"

/* Ranges in the plan's dtype, converted to F32 if the reduction wants that. */
static int measure(reduce_fn *reduce, const struct reduction *r, const struct batch *b, void *min, void *max,
                   struct nonfinite_count *nonfinite, qobs_error *error)
{
    const qobs_plan *plan = b->plan;
    if (!qobs_reduces_in_f32(r, plan->dtype) || plan->dtype == QOBS_F32)
        return reduce(b->runtime, b->kernels, plan, b->data, r->nonfinite, min, max, nonfinite, error);
    const size_t n = (size_t)plan->qparams, half = (n * qobs_dtype_size(plan->dtype) + 63) / 64 * 64;
    unsigned char *native = qobs_allocate(b->runtime, 2 * half);
    if (!native)
        return qobs_no_memory(error, "observer: no memory for %zu bytes of ranges", 2 * half);
    const int status =
        reduce(b->runtime, b->kernels, plan, b->data, r->nonfinite, native, native + half, nonfinite, error);
    if (status == QOBS_OK) {
        qobs_convert_to_f32(plan->dtype, n, native, min);
        qobs_convert_to_f32(plan->dtype, n, native + half, max);
    }
    qobs_release(b->runtime, native, 2 * half);
    return status;
}

static int measure_minmax(const struct reduction *r, const struct batch *b, struct histogram *histogram, void *min,
                          void *max, struct nonfinite_count *nonfinite, qobs_error *error)
{
    (void)histogram;
    return measure(qobs_reduce_minmax, r, b, min, max, nonfinite, error);
}

static int measure_absmax(const struct reduction *r, const struct batch *b, struct histogram *histogram, void *min,
                          void *max, struct nonfinite_count *nonfinite, qobs_error *error)
{
    (void)histogram;
    return measure(qobs_reduce_absmax, r, b, min, max, nonfinite, error);
}

static int measure_histogram(const struct reduction *r, const struct batch *b, struct histogram *histogram, void *min,
                             void *max, struct nonfinite_count *nonfinite, qobs_error *error)
{
    return r->histogram.ops->accept(&r->histogram, b, histogram, min, max, nonfinite, error);
}

const struct reduction_ops qobs_reduction_none = {.measure = NULL};
const struct reduction_ops qobs_reduction_minmax = {.measure = measure_minmax};
const struct reduction_ops qobs_reduction_absmax = {.measure = measure_absmax};
const struct reduction_ops qobs_reduction_absmax_f32 = {.measure = measure_absmax, .f64_in_f32 = true};
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
