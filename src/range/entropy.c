/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include <math.h>

#include "error.h"
#include "range/range.h"

size_t qobs_entropy_room(size_t bins) { return 2 * bins + 2 * (bins + 1); }

struct entropy qobs_entropy_prepare(const struct histogram_view *h, size_t cells, double *room)
{
    double *counts = room, *logs = counts + h->bins, *before = logs + h->bins, *nonzero = before + h->bins + 1;
    before[0] = nonzero[0] = 0;
    for (size_t i = 0; i < h->bins; i++) {
        counts[i] = h->counts[i == 0 ? 1 : i];
        logs[i] = counts[i] > 0 ? log(counts[i]) : 0;
        before[i + 1] = before[i] + counts[i];
        nonzero[i + 1] = nonzero[i] + (counts[i] > 0);
    }
    return (struct entropy){
        .bins = h->bins, .cells = cells, .counts = counts, .log = logs, .before = before, .nonzero = nonzero};
}

/* Where all in a cell have the same count, as in a cell of one bin, every term is exactly 0. */
double qobs_entropy_divergence(const struct entropy *e, size_t kept)
{
    const double all = e->before[e->bins], inside = e->before[kept], outside = all - inside, last = e->counts[kept - 1];
    if (!(inside > 0))
        return NAN;
    if (outside > 0 && last == 0)
        return INFINITY;
    double sum = 0;
    for (size_t from = 0; from < kept;) {
        /* Bin k is in cell floor(k * cells / kept). */
        const size_t cell = (size_t)((uint64_t)from * e->cells / kept);
        const size_t to = (size_t)(((uint64_t)(cell + 1) * kept + e->cells - 1) / e->cells);
        const double elements = e->before[to] - e->before[from];
        if (elements > 0) {
            const double mean = log(elements / (e->nonzero[to] - e->nonzero[from]));
            for (size_t k = from; k < to; k++)
                sum += e->counts[k] * (e->log[k] - mean);
            if (to == kept && outside > 0) /* the last bin has what is outside, too */
                sum += (last + outside) * (log(last + outside) - mean) - last * (e->log[kept - 1] - mean);
        }
        from = to;
    }
    return sum / all + log(inside / all);
}

size_t qobs_entropy_find(const struct entropy *e, size_t first, size_t stride)
{
    size_t best = first;
    double least = INFINITY;
    for (size_t kept = first; kept <= e->bins; kept += stride) {
        const double divergence = qobs_entropy_divergence(e, kept);
        if (divergence <= least || isnan(divergence)) {
            best = kept;
            least = divergence;
        }
    }
    return best;
}

int qobs_amax_by_entropy(const qobs_config *config, const struct histogram_view *h, int64_t stride, int64_t start_bin,
                         double *room, float *amax, qobs_error *error)
{
    if (stride < 1)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "stride: is %lld, must be above 0", (long long)stride);
    if (config->num_bits == NUM_BITS_E4M3)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "num_bits: is [4, 3], entropy takes integers");
    if (h->bins < 2)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "histogram: has 1 bin, entropy needs 2");
    if (start_bin < 1 || (uint64_t)start_bin > h->bins)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "start_bin: is %lld, allowed are 1 to the number of bins, %zu",
                         (long long)start_bin, h->bins);
    const size_t cells = (size_t)1 << (config->num_bits - 1 + config->is_unsigned);
    const struct entropy e = qobs_entropy_prepare(h, cells, room);
    *amax = h->edges[qobs_entropy_find(&e, (size_t)start_bin, (uint64_t)stride > h->bins ? h->bins : (size_t)stride)];
    return QOBS_OK;
}
