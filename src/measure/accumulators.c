/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One row for each accumulator. */
#include "measure/accumulators.h"

#include "measure/accumulate.h"

static void last(const struct accumulator_params *params, const struct range_update *u)
{
    (void)params, (void)u;
}

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
        qobs_update_towards(u->dtype, u->n, u->min, u->max, u->batch_min, u->batch_max, params->averaging_constant);
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

const struct accumulator_ops qobs_accumulate_last = {last, MERGE_LAST, false};
const struct accumulator_ops qobs_accumulate_extremes = {extremes, MERGE_EXTREMES, false};
const struct accumulator_ops qobs_accumulate_lerp = {lerp, MERGE_MEANS, false};
const struct accumulator_ops qobs_accumulate_moving_average = {moving_average, MERGE_MEANS, false};
const struct accumulator_ops qobs_accumulate_absmax = {absmax, MERGE_EXTREMES, true};
const struct accumulator_ops qobs_accumulate_absmax_last = {absmax, MERGE_LAST, true};
const struct accumulator_ops qobs_accumulate_absmax_first = {absmax_first, MERGE_LAST, true};
