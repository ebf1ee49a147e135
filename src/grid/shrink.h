/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Candidates of the grid search: a range shrunk step by step, and its scale and zero point. They come from a SIMD
 * kernel if one implements the formula, else from the formula itself; both give the same numbers. */
#pragma once

#include "range/range_rule.h"

/* Candidate i < steps is step i. Candidate `before` is the range that is searched, for its error; it may be step 0. */
struct shrink {
    const struct runtime *runtime;
    const struct grid_params *params;
    struct formula formula;
    qobs_dtype dtype; /* of ranges */
    bool integers;
    size_t before, candidates;
    bool without_before;           /* the error of `before` is not needed, so kernels skip it if it is no step */
    size_t padded;                 /* candidates rounded up to a multiple of 4 */
    const float *global_scale;     /* NULL: there is none */
    qobs_search_shrink_fn *kernel; /* NULL: none implements the formula */
    struct shrink_rule how;
    float *p;             /* [padded] factor of each step, 1 for other candidates; then [padded] 1 / p */
    float *global_scales; /* [candidates] with each_global_scale, else NULL */
};

/* Ranges of up to QOBS_SEARCH_LANES qparams, as numbers of shrink's dtype, and the exponent their elements are
 * multiplied by. */
struct range_batch {
    size_t n;
    double min[QOBS_SEARCH_LANES], max[QOBS_SEARCH_LANES];
    int prescale_exp[QOBS_SEARCH_LANES];
    bool finite[QOBS_SEARCH_LANES]; /* false: the lane has arbitrary finite candidates */
};

/* Their candidates for prescaled elements, [padded][QOBS_SEARCH_LANES], as kernels read them. */
struct shrunk {
    float *scale, *inverse, *offset;
    bool finite[QOBS_SEARCH_LANES];                        /* true: all candidates of the lane are finite */
    unsigned char *min, *max, *raw_scale, *raw_zero_point; /* [padded], input and output of the formula */
};

/* The number of candidates; the range before the search is one more if it is no step. */
size_t qobs_shrink_candidates(const struct grid_params *params);

/* search->min and max are read with each_global_scale only. */
int qobs_shrink_begin(struct shrink *s, const struct grid_search *g, qobs_error *error);
void qobs_shrink_release(struct shrink *shrink);

/* Bytes of memory, aligned to 64, for the arrays of a struct shrunk, and their places in it. */
size_t qobs_shrunk_size(const struct shrink *shrink);
void qobs_shrunk_place(const struct shrink *shrink, unsigned char *memory, struct shrunk *shrunk);

void qobs_shrink(const struct shrink *shrink, const struct range_batch *ranges, struct shrunk *to);

/* A bound (minimum or maximum) at a step; a step below 0 stands for the expanded range. */
double qobs_shrink_bound(const struct shrink *shrink, int step, double bound);

/* The same for n bounds of shrink's dtype, each at its own step. */
void qobs_shrink_bounds(const struct shrink *shrink, const int32_t *step, size_t n, const unsigned char *from,
                        unsigned char *to);
