/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/state.h"

#include <string.h>

#include "base/error.h"

int qobs_allocate_ranges(const struct runtime *runtime, struct ranges *ranges, qobs_dtype dtype, size_t n,
                         qobs_error *error)
{
    const size_t half = (n * qobs_dtype_size(dtype) + 63) / 64 * 64;
    ranges->min = qobs_allocate_state(runtime, 2 * half);
    if (!ranges->min)
        return qobs_no_memory(error, "observer: no memory for %zu bytes of ranges", 2 * half);
    ranges->max = ranges->min + half;
    ranges->size = 2 * half;
    return QOBS_OK;
}

void qobs_release_ranges(const struct runtime *runtime, struct ranges *ranges)
{
    qobs_release(runtime, ranges->min, ranges->size);
    *ranges = (struct ranges){0};
}

int qobs_error_sums_reserve(const struct runtime *runtime, struct error_sums *sums, size_t count, qobs_error *error)
{
    double *sum = qobs_allocate_state(runtime, count * sizeof *sum);
    if (!sum)
        return qobs_no_memory(error, "observer: no memory for %zu bytes of errors", count * sizeof *sum);
    memset(sum, 0, count * sizeof *sum);
    *sums = (struct error_sums){.sum = sum, .count = count};
    return QOBS_OK;
}

void qobs_state_release(const struct runtime *runtime, struct state *state)
{
    qobs_release_ranges(runtime, &state->ranges);
    qobs_release_ranges(runtime, &state->batch);
    qobs_mode_release(runtime, &state->mode);
    qobs_histogram_release(runtime, &state->histogram);
    qobs_release(runtime, state->sums.sum, state->sums.count * sizeof *state->sums.sum);
    state->sums = (struct error_sums){0};
    qobs_search_record_release(runtime, &state->record);
    qobs_optimal_result_release(runtime, &state->optimal);
}
