/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The histogram stage: the mass of all batches for every qparam, and the rules by which it accepts batches and grows.
 * Which range of a histogram is best to quantize is decided by the range rules (range_rule.h), which read bins and
 * edges only. */
#pragma once

#include "histogram/binning.h"
#include "measure/reduce.h"

/* 8 bytes a bin. Below 2^24 a mass is a float32, as upstream's are. From there on float32 loses counts, so a mass is a
 * double, which loses none up to 2^53. Re-binned mass may be fractional. */
struct histogram {
    size_t qparams, bins;
    double *mass;            /* [qparams * bins] */
    double *edges;           /* [bins + 1] if the rule stores them, else NULL; qparams is then 1 */
    struct bin_range *range; /* [qparams] */
    size_t size;             /* bytes of the three arrays together */
    int outside;             /* how many of the last batches in a row were not inside, at most MAX_OUTSIDE */
};

/* After so many batches the next one is expected to be outside, too. */
enum { MAX_OUTSIDE = 2 };

/* torch.ao's HistogramObserver: the union of all ranges, each old bin split into 16 parts. */
extern const struct histogram_ops qobs_histogram_torch;

/* Quark's and Model-Optimizer's: bins of the same width are added, up to 2^20 in total. */
extern const struct histogram_ops qobs_histogram_quark, qobs_histogram_modelopt;

/* Model-Optimizer's with numpy's bins and edges. */
extern const struct histogram_ops qobs_histogram_numpy;

/* Sets the edges of h->bins bins as numpy.linspace does in float; a range of one point becomes 1 wide. */
void qobs_numpy_edges(struct histogram *h, float first, float last);

static inline double bins_per_unit(const struct histogram *h)
{
    return (double)h->bins / (h->edges[h->bins] - h->edges[0]);
}

/* The bin of x, which lies within the edges: the last one whose left edge is not above x. */
static inline size_t numpy_bin(const struct histogram *h, double per_unit, double x)
{
    const double share = (x - h->edges[0]) * per_unit;
    size_t k = share < (double)h->bins ? (size_t)share : h->bins - 1;
    while (k > 0 && x < h->edges[k])
        k--;
    while (k + 1 < h->bins && x >= h->edges[k + 1])
        k++;
    return k;
}

/* By numpy's rule for the edges of a linspace: the quotient in float, corrected by at most one bin. */
static inline size_t numpy_linspace_bin(const struct histogram *h, float x)
{
    const float first = (float)h->edges[0], last = (float)h->edges[h->bins];
    const float share = (x - first) / (last - first) * (float)h->bins;
    size_t k = share < (float)h->bins ? (size_t)share : h->bins - 1;
    if ((double)x < h->edges[k])
        k -= k > 0;
    if ((double)x >= h->edges[k + 1] && k != h->bins - 1)
        k++;
    return k;
}

/* ONNX Runtime's: values between -threshold and threshold, or with `magnitude` magnitudes. */
extern const struct histogram_ops qobs_histogram_ort;

/* Model-Optimizer's of magnitudes of blocks, and its bin of a magnitude. */
extern const struct histogram_ops qobs_histogram_log2;
size_t qobs_log2_bin(const struct histogram_params *params, float magnitude);

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* A histogram without mass, as the rule needs it; allocated as state. */
int qobs_histogram_allocate(const struct runtime *runtime, const struct histogram_ops *ops, struct histogram *h,
                            size_t qparams, size_t bins, qobs_error *error);
int qobs_histogram_copy(const struct runtime *runtime, const struct histogram_ops *ops, struct histogram *h,
                        const struct histogram *from, qobs_error *error);
void qobs_histogram_release(const struct runtime *runtime, struct histogram *h);

/* ---- For the rules ----------------------------------------------------------------------------------------------- */

/* `accept` and `merge` of rules whose bins are all of the same width. */
int qobs_histogram_accept(const struct histogram_rule *rule, const struct batch *batch, struct histogram *h, float *min,
                          float *max, struct nonfinite_count *nonfinite, qobs_error *error);
int qobs_histogram_merge(const struct histogram_rule *rule, const struct runtime *runtime, struct histogram *h,
                         const struct histogram *from, qobs_error *error);

/* torch.ao's re-binning: the definition, and the fast form with the same bits (test_histogram compares both). */
rebin_fn qobs_rebin_by_parts, qobs_rebin;

/* a + b, rounded as mass is. */
static inline double add_mass(double a, double b, bool float32)
{
    const double sum = a + b;
    return float32 || sum < 0x1p24 ? (float)sum : sum;
}
