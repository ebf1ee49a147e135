/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Histograms: how elements become bins, the counts of one batch, and the mass kept of all batches. Which range a histogram has
 * and how it grows is the observer's affair (struct histogram_rule); what range is best to quantize is that of the range
 * finders (range/range.h), which see bins and edges only. */
#ifndef QOBS_STATISTIC_HISTOGRAM_H
#define QOBS_STATISTIC_HISTOGRAM_H

#include <math.h>

#include <string.h>

#include "kernels/kernels.h"
#include "measure/nonfinite.h"
#include "plan/plan.h"

/* ---- One batch ---------------------------------------------------------------------------------------------------------- */

/* The rule for `bins` bins from lo to hi, which are finite, lo <= hi; of |x| if `magnitude`, of all but 0 if `skip_zeros`. A single
 * point c becomes [c - 1, c + 1], as in torch.histc, and where that is c again (upstream then divides 0 by 0) the numbers next to
 * c. */
struct qobs_binning qobs_binning_of(float lo, float hi, size_t bins, bool magnitude, bool skip_zeros);

/* Elements are seen, but none is counted. */
struct qobs_binning qobs_binning_of_nothing(size_t bins, bool magnitude, bool skip_zeros);

/* The bin of an element in range, as kernels find it. */
size_t qobs_bin_of(const struct qobs_binning *binning, float x);

/* Before anything has been seen. */
struct qobs_extrema qobs_seen_nothing(void);

/* Counts one batch: for qparam q its elements under binning[q] into counts[q * bins], and its extremes into seen[q]; both are
 * overwritten. All binnings have the same number of bins. Zeros that pad a block count. `data` is what the plan's value stands
 * for. stopped: NULL, or it counts no further once an element is found outside its binning and only looks at the extremes of what
 * is left; the counts are then no use, and *stopped is true. Runs on the runtime's executor; the counts do not depend on it.
 * Memory, given back: a few arrays of `bins` counters for each thread. */
int qobs_collect(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                 const unsigned char *data, const struct qobs_binning *binning, uint64_t *counts, struct qobs_extrema *seen,
                 bool *stopped, qobs_error *error);

/* A range that grows while a batch is counted. */
struct qobs_widening {
    float min, max; /* what it holds */
    bool look;      /* it is expected to grow */
    /* Makes min, max and the binning those of what has been seen by now, whatever they were made of before. */
    int (*widen)(struct qobs_widening *widening, qobs_error *error);
};

/* Counts a batch of one qparam under the range that holds all of it, which is found meanwhile. `binning` is what widen changes, though
 * not the number of bins. *counted: false where it has done nothing, as the batch is no run of contiguous elements or is for several
 * threads. Otherwise like qobs_collect. */
int qobs_collect_widening(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                          const unsigned char *data, struct qobs_widening *widening, const struct qobs_binning *binning,
                          uint64_t *counts, struct qobs_extrema *seen, bool *counted, qobs_error *error);

/* The extremes alone, which take less time. */
int qobs_see(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan, const unsigned char *data,
             bool magnitude, bool skip_zeros, struct qobs_extrema *seen, qobs_error *error);

/* Refuses, with the place of the first, what `mode` does not let pass. */
int qobs_check_seen(const qobs_plan *plan, const unsigned char *data, enum nonfinite_mode mode, const struct qobs_extrema *seen,
                    struct qobs_nonfinite *nonfinite, qobs_error *error);

/* ---- All batches -------------------------------------------------------------------------------------------------------- */

/* Where the bins of one qparam lie. */
struct bin_range {
    float lo, hi; /* lo > hi: nothing has been seen */
    float step;   /* of the edges, for rules that say so; 0 otherwise */
};

/* The mass of all batches for every qparam: 8 bytes a bin. A mass is a number float32 has, as upstream's are, until it
 * reaches 2^24, where float32 begins to lose counts; from there on it is a double, which loses none up to 2^53. Re-binned
 * mass need not be whole. */
struct histogram {
    size_t qparams, bins;
    struct bin_range *range; /* [qparams] */
    double *mass;            /* [qparams * bins] */
    size_t size;             /* bytes of both */
    double *edges;           /* [bins + 1], where no rule makes them of the range; then qparams is 1 */
    int growing;             /* how many of the last batches in a row were not inside, at most MOST_GROWING */
};

/* From how many on the next one is expected not to be either, and looked at first. */
enum { MOST_GROWING = 2 };

struct histogram_params {
    size_t bins;           /* of the first batch */
    bool magnitude;        /* elements are binned by their magnitude */
    bool skip_zeros;       /* zeros are not counted */
    bool float32_counts;   /* sums of counts are rounded to float32, as upstream's; single counts end at 2^24 */
    bool shifted_counts;   /* old counts move with their bins if bins are added below them; upstream's do not */
    enum nonfinite_mode nonfinite;
};

/* How the histogram of an observer grows with its batches. */
struct histogram_ops {
    /* The range and number of bins that hold what is there (now->lo > now->hi: nothing) and a batch with extremes `seen`, which
     * is not inside; fails where there would be too many. Only a histogram of one qparam may change its bins. */
    int (*grow)(const struct histogram_params *params, const struct bin_range *now, size_t bins, const struct qobs_extrema *seen,
                struct bin_range *next, size_t *next_bins, qobs_error *error);
    bool same_bins; /* grow never changes how many there are */
    /* What of such a batch the histogram has to hold, where that is more than its extremes; NULL: it is not. */
    struct qobs_extrema (*reach)(const struct histogram_params *params, size_t bins, const struct qobs_extrema *seen);
    /* Moves mass over `now` to zeroed mass over `next`. */
    void (*move)(const struct histogram_params *params, const struct bin_range *now, size_t bins, const double *mass,
                 const struct bin_range *next, size_t next_bins, double *next_mass);
};

struct histogram_rule {
    const struct histogram_ops *ops; /* NULL: no histogram */
    struct histogram_params params;
};

int qobs_histogram_allocate(const struct runtime *runtime, struct histogram *h, size_t qparams, size_t bins, qobs_error *error);
int qobs_histogram_copy(const struct runtime *runtime, struct histogram *h, const struct histogram *from, qobs_error *error);
void qobs_histogram_release(const struct runtime *runtime, struct histogram *h);

/* Takes a batch into *h, which may be empty, and gives its extremes (a qparam that saw nothing: infinity and -infinity). After a
 * failure *h is as it was. */
int qobs_histogram_take(const struct runtime *runtime, const struct qobs_kernels *kernels, const struct histogram_rule *rule,
                        const qobs_plan *plan, const unsigned char *data, struct histogram *h, float *min, float *max,
                        struct qobs_nonfinite *nonfinite, qobs_error *error);

/* Merges `from`, of as many qparams, into *h: each over the range that holds both. After a failure *h is valid, but of no use. */
int qobs_histogram_merge(const struct runtime *runtime, const struct histogram_rule *rule, struct histogram *h,
                         const struct histogram *from, qobs_error *error);

/* a + b, rounded as mass is. */
static inline double add_mass(double a, double b, bool float32)
{
    const double sum = a + b;
    return float32 || sum < 0x1p24 ? (float)sum : sum;
}

/* torch.linspace(start, end, n) in float32. */
struct linspace {
    float start, end, step;
    size_t n;
};

static inline struct linspace linspace_of(float start, float end, size_t n)
{
    const struct linspace l = {start, end, (end - start) / (float)(n - 1), n};
    return l;
}

/* Is a product, exact in double, plus a number, whose sum this is, rounded wrong when it is rounded again, to float? Only if it may
 * have been rounded to halfway between two floats, or is none of the normal ones. Without a branch: 1 or 0. */
static inline uint64_t must_fuse(double sum)
{
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    const uint64_t not_halfway = (bits & 0x1fffffff) ^ 0x10000000, exponent = bits >> 52 & 0x7ff;
    return ((not_halfway - 1) | (exponent - (1023 - 126)) | (1023 + 127 - exponent)) >> 63;
}

/* fmaf without a call. */
static inline float multiply_add(float a, float b, float c)
{
    const double sum = (double)a * (double)b + (double)c;
    return must_fuse(sum) ? fmaf(a, b, c) : (float)sum;
}

static inline float linspace_at(const struct linspace *l, size_t i)
{
    return i < l->n / 2 ? multiply_add(l->step, (float)i, l->start) : multiply_add(-l->step, (float)(l->n - i - 1), l->end);
}

/* torch.ao's HistogramObserver: the union of all ranges, each old bin split into 16 parts. */
extern const struct histogram_ops qobs_histogram_torch;

/* Quark's and Model-Optimizer's: bins of the same width are added, at most up to 2^20. */
extern const struct histogram_ops qobs_histogram_quark, qobs_histogram_modelopt;

/* Model-Optimizer's with numpy's bins, which has edges. */
extern const struct histogram_ops qobs_histogram_numpy;
int qobs_histogram_take_numpy(const struct runtime *runtime, const struct qobs_kernels *kernels,
                              const struct histogram_params *params, const qobs_plan *plan, const unsigned char *data, struct histogram *h, float *min, float *max,
                              struct qobs_nonfinite *nonfinite, qobs_error *error);
int qobs_histogram_merge_numpy(const struct runtime *runtime, const struct histogram_params *params, struct histogram *h,
                               const struct histogram *from, qobs_error *error);

/* Edge i of a histogram under the rules that add bins. */
float qobs_bin_edge(const struct bin_range *range, size_t bins, size_t i);

#endif
