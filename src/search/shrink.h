/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The candidates of a range: shrunk step by step, and the scale and zero point that gives. */
#ifndef QOBS_SEARCH_SHRINK_H
#define QOBS_SEARCH_SHRINK_H

#include "search/search.h"

/* Candidate i < steps is that of step i; the range as it came in, which nothing may be known of otherwise, is candidate `before`. */
struct shrink {
    const struct runtime *runtime;
    const struct search_settings *settings;
    qobs_config config; /* the convention's settings */
    qobs_dtype dtype;   /* of ranges */
    bool integers;
    size_t before, candidates;
    bool without_before; /* nobody asks for its error, and it may be any where it costs something */
    size_t room; /* candidates rounded up to QOBS_SEARCH_LANES */
    const float *global_scale; /* NULL: there is none */
    qobs_search_shrink_fn *kernel; /* NULL: only the convention itself can */
    struct qobs_shrinking how;
    float *p;             /* of each candidate, or 1; behind them 1 / p */
    float *global_scales; /* with optimize_global_scale one a candidate */
};

/* Candidates of one range at a time, in scaled elements; all arrays have shrink->room entries. */
struct shrunk {
    struct qobs_search_candidates candidates;
    float *scale, *inverse, *shift;
    bool finite; /* all of them; else some may not be */
    unsigned char *min, *max, *raw_scale, *raw_zero_point; /* the convention's, on the way */
};

/* min and max: shrink's ranges, for optimize_global_scale. */
int qobs_shrink_begin(struct shrink *shrink, const struct runtime *runtime, const struct qobs_kernels *kernels,
                      const qobs_config *config, const struct search_settings *settings, const qobs_plan *plan, const float *global_scale, const void *min,
                      const void *max, qobs_error *error);
void qobs_shrink_end(struct shrink *shrink);

/* Bytes of memory, aligned to 64, for the arrays of n struct shrunk, and their places in it; the raw ones are all the same. */
size_t qobs_shrunk_size(const struct shrink *shrink, size_t n);
void qobs_shrunk_place(const struct shrink *shrink, unsigned char *memory, struct shrunk *shrunk, size_t n);

/* The candidates of the range [min, max] for elements times 2^shift. */
void qobs_shrink(const struct shrink *s, double min, double max, int shift, struct shrunk *to);

/* The range of a step; below 0 the expanded one. */
void qobs_shrink_range(const struct shrink *shrink, int step, double *min, double *max);

/* Of n ranges, numbers of shrink's dtype, each becomes that of its step. */
void qobs_shrink_ranges(const struct shrink *shrink, const int32_t *step, size_t n, void *min, void *max);

#endif
