/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One row for each accumulator. */
#include "measure/accumulators.h"

#include "reduce/accumulate.h"
#include "number/block_float.h"

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
