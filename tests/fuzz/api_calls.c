/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The functions that need no observer. */
#include "api.h"

#include <math.h>

#include "qobs/format.h"
#include "qobs/experimental.h"
#include "calls.h"

/* Memory for the results of a call: exact in size, with known contents that stay if nothing is written. */
static void *results(size_t size) { return memset(workspace(size), 0x5a, size); }

static size_t qparams_of(const qobs_plan *plan)
{
    int64_t shape[QOBS_PLAN_MAX_NDIM];
    size_t n = 1;
    const int ndim = qobs_plan_shape(plan, shape, sizeof shape);
    for (int d = 1; d < ndim - 1; d++)
        n *= (size_t)shape[d];
    return n;
}

static void record_counts(struct record *r, const qobs_counts *c) { record(r, c, sizeof *c); }

static void run_minmax(struct run *run, const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                       size_t n)
{
    const size_t size = n * qobs_dtype_size(value->dtype);
    void *min = results(size), *max = results(size), *scale = results(n * 8), *zero_point = results(n * 8);
    qobs_counts counts = {.struct_size = sizeof counts};
    qobs_error error;
    const float global_scale = take_float(&run->b);
    const bool has_global = take_below(&run->b, 4) == 0;
    if (record_status(&run->record, call_minmax(config, value, g_idx, min, max, &counts, run->runtime, &error), &error))
        record_status(&run->record,
                      call_calculate_qparams(config, value->dtype, n, min, max, has_global ? &global_scale : NULL,
                                             scale, zero_point, &error),
                      &error);
    record(&run->record, min, size);
    record(&run->record, max, size);
    record(&run->record, scale, n * 8);
    record(&run->record, zero_point, n * 8);
    record_counts(&run->record, &counts);
    unsigned char whole[2][8] = {{0}};
    record_status(&run->record, call_global_minmax(config, value, whole[0], whole[1], &counts, run->runtime, &error),
                  &error);
    record(&run->record, whole, sizeof whole);
    free(min);
    free(max);
    free(scale);
    free(zero_point);
}

static void run_histogram(struct run *run, const qobs_config *config, const qobs_tensor *value,
                          const qobs_tensor *g_idx, size_t n)
{
    qobs_histogram_options bins = {.struct_size = sizeof bins, .count = (int64_t)take_below(&run->b, 300)};
    qobs_counts seen = {.struct_size = sizeof seen};
    qobs_error error;
    if (take_below(&run->b, 2)) {
        bins.min = take_float(&run->b);
        bins.max = take_float(&run->b);
    }
    bins.magnitude = take_below(&run->b, 2);
    bins.skip_zeros = take_below(&run->b, 2);
    const bool whole = take_below(&run->b, 2);
    const size_t qparams = whole ? 1 : n, size = qparams * (size_t)bins.count * sizeof(uint64_t);
    uint64_t *counts = results(size);
    float *first = results(qparams * sizeof *first), *last = results(qparams * sizeof *last);
    record_status(&run->record,
                  call_histogram(whole ? NULL : config, value, whole ? NULL : g_idx, &bins, counts, first, last, &seen,
                                 run->runtime, &error),
                  &error);
    if (error.status == QOBS_OK) { /* otherwise what was begun may lie there */
        record(&run->record, counts, size);
        record(&run->record, first, qparams * sizeof *first);
        record(&run->record, last, qparams * sizeof *last);
        record_counts(&run->record, &seen);
    }
    free(counts);
    free(first);
    free(last);
}

static void run_search(struct run *run, const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                       size_t n)
{
    const size_t size = n * qobs_dtype_size(value->dtype),
                 columns = value->ndim > 0 ? (size_t)value->shape[value->ndim - 1] : 1;
    void *min = results(size), *max = results(size);
    int32_t *best = results(n * sizeof *best);
    double *errors = results(n * sizeof *errors);
    float *importance = workspace(columns * sizeof *importance);
    qobs_search_report report = {.struct_size = sizeof report};
    qobs_error error;
    for (size_t i = 0; i < columns; i++)
        importance[i] = (float)take(&run->b, 1);
    const float global_scale = take_float(&run->b);
    const bool weighted = take_below(&run->b, 2), has_global = take_below(&run->b, 4) == 0;
    if (record_status(&run->record,
                      call_search(config, value, g_idx, weighted ? importance : NULL, has_global ? &global_scale : NULL,
                                  min, max, best, errors, &report, run->runtime, &error),
                      &error)) {
        record(&run->record, min, size);
        record(&run->record, max, size);
        record(&run->record, best, n * sizeof *best);
        record(&run->record, errors, n * sizeof *errors);
        record(&run->record, &report.steps, sizeof report.steps);
        record(&run->record, &report.stop_step, sizeof report.stop_step);
        record(&run->record, &report.error, sizeof report.error);
        record(&run->record, &report.error_before, sizeof report.error_before);
    }
    unsigned char whole[2][8] = {{0}};
    if (record_status(&run->record, call_global_search(config, value, whole[0], whole[1], run->runtime, &error),
                      &error))
        record(&run->record, whole, sizeof whole);
    free(min);
    free(max);
    free(best);
    free(errors);
    free(importance);
}

static void run_fake_quantize(struct run *run, const qobs_config *config, const struct tensor *t,
                              const qobs_tensor *value, const qobs_tensor *g_idx, size_t n)
{
    static const qobs_dtype zero_point_dtypes[] = {QOBS_I8, QOBS_I32, QOBS_F32, QOBS_BF16, QOBS_F8_E4M3, QOBS_I64};
    struct bytes *b = &run->b;
    const qobs_dtype scale_dtype = take_below(b, 2) ? value->dtype : QOBS_F32,
                     zero_point_dtype = zero_point_dtypes[take_below(b, 6)];
    const size_t scale_size = qobs_dtype_size(scale_dtype), zero_point_size = qobs_dtype_size(zero_point_dtype);
    unsigned char *scale = workspace(n * scale_size), *zero_point = workspace(n * zero_point_size);
    for (size_t i = 0; i < n; i++) {
        /* Nothing that this run's rounding or flushing would change. */
        const bool good = take_below(b, 8);
        uint32_t bits =
            good ? (uint32_t)(111 + take_below(b, 20)) << 23 | (uint32_t)take(b, 1) << 15 : (uint32_t)take(b, 4);
        bits = (bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits;
        float single;
        memcpy(&single, &bits, sizeof single);
        const double of_one = (double)single;
        if (scale_size == 8)
            memcpy(scale + i * 8, &of_one, 8);
        else if (scale_size == 4)
            memcpy(scale + i * 4, &single, 4);
        else
            memcpy(scale + i * 2,
                   scale_dtype == QOBS_BF16 ? (const unsigned char *)&bits + 2 : (const unsigned char *)&bits + 1, 2);
        const uint64_t zero = take_below(b, 2) ? 0 : take(b, zero_point_size);
        memcpy(zero_point + i * zero_point_size, &zero, zero_point_size);
    }
    const int64_t count[] = {(int64_t)n};
    const qobs_tensor scales = {sizeof scales, scale, scale_dtype, 1, count, NULL},
                      zero_points = {sizeof zero_points, zero_point, zero_point_dtype, 1, count, NULL};
    const float global_scale = take_float(b);
    const qobs_format *format = take_below(b, 2) ? qobs_format_at(take_below(b, qobs_format_count())) : NULL;
    const bool with_zero = take_below(b, 2), has_global = take_below(b, 4) == 0;
    const size_t size = (size_t)t->elements * t->dtype->size;
    void *out = results(size);
    qobs_error error;
    record_status(&run->record,
                  call_fake_quantize(config, format, value, g_idx, &scales, with_zero ? &zero_points : NULL,
                                     has_global ? &global_scale : NULL, out, NULL, run->runtime, &error),
                  &error);
    record(&run->record, out, size);
    free(out);
    free(scale);
    free(zero_point);
}

/* Model-Optimizer's functions, with magnitudes of the value or of the input. */
static void run_by_amax(struct run *run, const qobs_config *config, const struct tensor *t, const qobs_tensor *value,
                        size_t n)
{
    const size_t size = (size_t)t->elements * t->dtype->size;
    const int64_t count[] = {(int64_t)n};
    float *amax = results(n * sizeof *amax);
    void *out = results(size);
    const qobs_tensor magnitudes = {sizeof magnitudes, amax, QOBS_F32, 1, count, NULL};
    qobs_error error;
    for (size_t i = 0; i < n; i++)
        amax[i] = fabsf(take_float(&run->b));
    const qobs_fake_quantize_args fake = {.struct_size = sizeof fake,
                                          .config = config,
                                          .value = value,
                                          .out = out,
                                          .out_size = size,
                                          .runtime = run->runtime,
                                          .amax = &magnitudes};
    record_status(&run->record, qobs_fake_quantize(&fake, &error), &error);
    record(&run->record, out, size);
    const qobs_calibrate_args weights = {.struct_size = sizeof weights,
                                         .config = config,
                                         .value = value,
                                         .amax = amax,
                                         .amax_size = n * sizeof *amax,
                                         .runtime = run->runtime};
    /* Memory and time of a million bins are those of every qparam. */
    if (n <= 2 && record_status(&run->record, qobs_calibrate_weights(&weights, &error), &error))
        record(&run->record, amax, n * sizeof *amax);
    free(amax);
    free(out);
}

void run_direct(struct run *run, const qobs_config *config, const struct tensor *t, const qobs_tensor *g_idx)
{
    const qobs_tensor value = view_of(t);
    qobs_plan *plan = NULL;
    qobs_error error;
    if (!record_status(&run->record, qobs_plan_create(&plan, config, &value, g_idx, run->runtime, &error), &error))
        return;
    const size_t n = qparams_of(plan);
    qobs_plan_destroy(plan);
    switch (take_below(&run->b, 5)) {
    case 0:
        run_minmax(run, config, &value, g_idx, n);
        break;
    case 1:
        run_histogram(run, config, &value, g_idx, n);
        break;
    case 2:
        run_search(run, config, &value, g_idx, n);
        break;
    case 3:
        run_by_amax(run, config, t, &value, n);
        break;
    default:
        run_fake_quantize(run, config, t, &value, g_idx, n);
        break;
    }
}
