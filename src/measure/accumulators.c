/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One row for each accumulator. */

#include "measure/accumulators.h"

#include "number/exponent.h"
#include "number/convert.h"
#include "number/native.h"

#define NATIVE_BODY "measure/accumulate.inl.h"
#include "number/native_each.inl.h"

void qobs_update_running(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi)
{
    FOR_NATIVE(dtype, running, n, min, max, lo, hi)
}

void qobs_update_absmax(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi, bool first)
{
    FOR_NATIVE(dtype, absmax, n, min, max, lo, hi, first)
}

void qobs_update_lerp(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi, double c)
{
    FOR_NATIVE(dtype, lerp, n, min, lo, c)
    FOR_NATIVE(dtype, lerp, n, max, hi, c)
}

void qobs_update_moving_average(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi,
                                double c)
{
    FOR_NATIVE(dtype, moving_average, n, min, lo, c)
    FOR_NATIVE(dtype, moving_average, n, max, hi, c)
}

void qobs_convert_to_f32(qobs_dtype from, size_t n, const void *x, float *out) { FOR_NATIVE(from, convert, n, x, out) }

static void last(const struct accumulator_params *params, const struct range_update *u) { (void)params, (void)u; }

static void extremes(const struct accumulator_params *params, const struct range_update *u)
{
    (void)params;
    if (!u->first)
        qobs_update_running(u->dtype, u->n, u->min, u->max, u->batch_min, u->batch_max);
}

static void lerp(const struct accumulator_params *params, const struct range_update *u)
{
    if (!u->first)
        qobs_update_lerp(u->dtype, u->n, u->min, u->max, u->batch_min, u->batch_max, params->averaging_constant);
}

static void moving_average(const struct accumulator_params *params, const struct range_update *u)
{
    if (!u->first)
        qobs_update_moving_average(u->dtype, u->n, u->min, u->max, u->batch_min, u->batch_max,
                                   params->averaging_constant);
}

static void absmax(const struct accumulator_params *params, const struct range_update *u)
{
    (void)params;
    qobs_update_absmax(u->dtype, u->n, u->min, u->max, u->batch_min, u->batch_max, u->first);
}

static void absmax_first(const struct accumulator_params *params, const struct range_update *u)
{
    if (u->first)
        absmax(params, u);
}

static void bfp(const struct accumulator_params *params, const struct range_update *u)
{
    const qobs_dtype scale_dtype = params->scale_dtype ? params->scale_dtype : u->dtype;
    qobs_update_absmax_bfp(u->dtype, scale_dtype, u->n, u->min, u->max, u->batch_min, u->batch_max, u->first);
}

const struct accumulator_ops qobs_accumulate_last = {.update = last, .merge = MERGE_LAST, .replaces = true};
const struct accumulator_ops qobs_accumulate_extremes = {.update = extremes, .merge = MERGE_EXTREMES};
const struct accumulator_ops qobs_accumulate_lerp = {.update = lerp, .merge = MERGE_MEANS, .averages = true};
const struct accumulator_ops qobs_accumulate_moving_average = {
    .update = moving_average, .merge = MERGE_MEANS, .averages = true};
const struct accumulator_ops qobs_accumulate_mode = {.update = extremes, .merge = MERGE_EXTREMES, .counts_mode = true};
const struct accumulator_ops qobs_accumulate_absmax = {.update = absmax, .merge = MERGE_EXTREMES, .symmetric = true};
const struct accumulator_ops qobs_accumulate_absmax_last = {.update = absmax, .merge = MERGE_LAST, .symmetric = true};
const struct accumulator_ops qobs_accumulate_absmax_first = {
    .update = absmax_first, .merge = MERGE_LAST, .symmetric = true};
const struct accumulator_ops qobs_accumulate_bfp = {.update = bfp, .merge = MERGE_EXTREMES, .symmetric = true};

/* Model-Optimizer's BiasCalibrator: the mean of the batches' means, (mean * n + batch) / (n + 1) in float, rounded to
 * the dtype. */

static void average(qobs_dtype dtype, size_t n, void *state, const void *batch, uint64_t batches)
{
    const size_t size = qobs_dtype_size(dtype);
    const float before = (float)batches, after = (float)(batches + 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char *mean = (unsigned char *)state + i * size;
        const float old = (float)qobs_element(mean, dtype),
                    added = (float)qobs_element((const unsigned char *)batch + i * size, dtype);
        qobs_put_element(mean, dtype, (double)((old * before + added) / after));
    }
}

static void update(const struct accumulator_params *params, const struct range_update *u)
{
    (void)params;
    if (u->first)
        return;
    average(u->dtype, u->n, u->min, u->batch_min, u->batches);
    average(u->dtype, u->n, u->max, u->batch_max, u->batches);
}

const struct accumulator_ops qobs_accumulate_running_mean = {.update = update, .merge = MERGE_MEANS};
