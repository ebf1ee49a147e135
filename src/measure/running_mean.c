/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Model-Optimizer's BiasCalibrator: the mean of the batches' means, (mean * n + batch) / (n + 1) in float, rounded to
 * the dtype. */
#include "measure/accumulators.h"
#include "number/convert.h"

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
