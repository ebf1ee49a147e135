/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The candidates of a range: shrunk step by step, and the scale and zero point that gives. */
#ifndef QOBS_SEARCH_SHRINK_H
#define QOBS_SEARCH_SHRINK_H

#include "range/search.h"

/* Candidate i < steps is that of step i; the range as it came in, which nothing may be known of otherwise, is candidate `before`. */
struct shrink {
    const struct runtime *runtime;
    const struct grid_params *params;
    struct formula formula;
    qobs_dtype dtype;   /* of ranges */
    bool integers;
    size_t before, candidates;
    bool without_before; /* nobody asks for its error, and it may be any where it costs something */
    size_t workspace; /* candidates rounded up to a multiple of 4 */
    const float *global_scale; /* NULL: there is none */
    qobs_search_shrink_fn *kernel; /* NULL: only the formula itself can */
    struct qobs_shrinking how;
    float *p;             /* of each candidate, or 1; behind them 1 / p */
    float *global_scales; /* with each_global_scale one a candidate */
};

/* A batch of ranges, numbers of shrink's dtype, for elements times 2^shift. */
struct ranges {
    size_t n;
    double min[QOBS_SEARCH_LANES], max[QOBS_SEARCH_LANES];
    int shift[QOBS_SEARCH_LANES];
    bool finite[QOBS_SEARCH_LANES]; /* else it has no candidates */
};

/* Their candidates, [shrink->room][QOBS_SEARCH_LANES], in scaled elements. Lanes without a finite range have any numbers. */
struct shrunk {
    float *scale, *inverse, *shift;
    bool finite[QOBS_SEARCH_LANES]; /* all candidates; else some may not be */
    unsigned char *min, *max, *raw_scale, *raw_zero_point; /* the formula's, on the way: room for each candidate */
};

int qobs_shrink_begin(struct shrink *shrink, const struct grid_search *search, qobs_error *error);
void qobs_shrink_release(struct shrink *shrink);

/* Bytes of memory, aligned to 64, for a struct shrunk's arrays, and their places in it. */
size_t qobs_shrunk_size(const struct shrink *shrink);
void qobs_shrunk_place(const struct shrink *shrink, unsigned char *memory, struct shrunk *shrunk);

void qobs_shrink(const struct shrink *shrink, const struct ranges *ranges, struct shrunk *to);

/* An end of a range at a step; below 0 the expanded one. */
double qobs_shrink_end(const struct shrink *shrink, int step, double end);

/* The same for n of them, numbers of shrink's dtype, each at its step. */
void qobs_shrink_ends(const struct shrink *shrink, const int32_t *step, size_t n, const unsigned char *from, unsigned char *to);

#endif
