/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ONNX Runtime's HistogramCollector.compute_distribution: mean and standard deviation of the centres of bins, or of
 * their cube roots. Centres are float, sums double, results float. */
#include <math.h>

#include "histogram/from_histogram.h"

static float centre(const struct histogram *h, size_t i, bool roots)
{
    const float value = ((float)h->edges[i] + (float)h->edges[i + 1]) * 0.5f;
    return roots ? (float)cbrt((double)value) : value;
}

/* min and max are mean and standard deviation. */
static int find(const struct runtime *runtime, const struct range_params *params, const struct formula *formula,
                const struct histogram *h, float *min, float *max, qobs_error *error)
{
    double total = 0, sum = 0, squares = 0;
    (void)runtime, (void)formula, (void)error;
    for (size_t i = 0; i < h->bins; i++) {
        const float value = centre(h, i, params->bins.roots), square = value * value;
        total += h->mass[i];
        sum += h->mass[i] * (double)value;
        squares += h->mass[i] * (double)square;
    }
    const double mean = sum / total;
    *min = (float)mean;
    *max = (float)sqrt(squares / total - mean * mean);
    return QOBS_OK;
}

const struct range_ops qobs_range_ort_distribution = {.find = find, .found_moments = true};
