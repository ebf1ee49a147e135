/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What is read of an observer's histograms: the range its preset finds in them, and scale and zero point for that. */
#include <string.h>

#include "error.h"
#include "fpenv.h"
#include "observer.h"
#include "range/range.h"

static int find_non_linear(const qobs_observer *o, float *min, float *max, qobs_error *error)
{
    const struct histogram *h = &o->kept.histogram;
    const size_t size = (h->bins + qobs_non_linear_room(h->bins)) * sizeof(float);
    float *counts = qobs_allocate(&o->runtime, size);
    if (!counts)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes", size);
    for (size_t q = 0; q < h->qparams; q++) {
        const struct bin_range *range = &h->range[q];
        min[q] = range->lo;
        max[q] = range->hi;
        if (range->lo > range->hi)
            continue;
        for (size_t k = 0; k < h->bins; k++)
            counts[k] = (float)h->mass[q * h->bins + k];
        qobs_non_linear_search(counts, h->bins, range->lo, range->hi, qobs_non_linear_cells(&o->config), counts + h->bins,
                               &min[q], &max[q]);
    }
    qobs_release(&o->runtime, counts, size);
    return QOBS_OK;
}

void qobs_read_histogram(const qobs_observer *o, float *out)
{
    const struct histogram *h = &o->kept.histogram;
    for (size_t k = 0; k < h->qparams * h->bins; k++)
        out[k] = (float)h->mass[k];
}

int qobs_read_found(const qobs_observer *o, float *min, float *max, void *scale, void *zero_point, qobs_error *error)
{
    struct range_view ranges = qobs_view_ranges(o);
    const size_t size = ranges.n * sizeof(float);
    float *found = qobs_allocate(&o->runtime, 2 * size);
    if (!found)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes of ranges", 2 * size);
    ranges.min = found;
    ranges.max = found + ranges.n;
    const fp_mode mode = fp_enter();
    int status = find_non_linear(o, found, found + ranges.n, error);
    if (status == QOBS_OK && (scale || zero_point))
        status = qobs_convention(&o->config, &ranges, scale, zero_point, error);
    fp_leave(mode);
    if (status == QOBS_OK && min)
        memcpy(min, ranges.min, size);
    if (status == QOBS_OK && max)
        memcpy(max, ranges.max, size);
    qobs_release(&o->runtime, found, 2 * size);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}
