/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search of one group: what its files have in common, and bounds that leave out scales that cannot win. */
#pragma once

#include "optimal/optimal.h"

/* Candidates of one group whose errors are known up to some slack. Those that may win are decided by their errors,
 * which are then computed as the definition says. The winner does not depend on the order or the slack. */
enum { PENDING_CANDIDATES = 64 };

struct candidate_set {
    const struct kernel_table *kernels;
    struct optimal_number number;
    const struct optimal_group *group;
    struct optimal_choice best; /* of those that have been decided */
    double bound;               /* the lowest error is not above it */
    size_t pending;
    struct candidate_bound {
        float scale;
        int32_t zero_point;
        double lowest; /* the error is not below it */
    } pending_bounds[PENDING_CANDIDATES];
};

/* Computes the error of a candidate now, and returns it. */
double qobs_candidates_evaluate(struct candidate_set *candidates, float scale, int32_t zero_point);

/* Adds a candidate whose error is from `nearly` - slack to `nearly` + slack. */
void qobs_candidates_add(struct candidate_set *candidates, float scale, int32_t zero_point, double nearly,
                         double slack);

/* Decides what is pending. candidates->best is then the winner. */
void qobs_candidates_finish(struct candidate_set *candidates);

/* The arrays of the scratch. */
struct group_arrays {
    size_t *count;             /* of candidates, if they are the same for all groups */
    float *scale;              /* candidates */
    double *error;             /* on the curve */
    struct optimal_steps *steps;
    float *large[2];           /* magnitudes above the thresholds, of positive and of negative elements */
    double *large_weight[2];
    void *curve;
};

struct group_search {
    const struct kernel_table *kernels;
    const struct optimal_params *params;
    const struct optimal_group *group;
    struct optimal_moments sums;
    struct optimal_range range;
    struct group_arrays arrays;
    size_t count;              /* of candidates */
    bool without_gaps;         /* these are numbers with 8 significant bits, without a gap */
    size_t large[2];           /* elements above the thresholds */
    double threshold[2];       /* a scale whose limit is below this magnitude of one side costs more than the bound */
    double steps;              /* from the smallest to the largest integer */
    struct candidate_set *candidates;
};

/* The elements and their padding. */
static inline size_t optimal_padded(size_t n)
{
    return (n + QOBS_OPTIMAL_LANES - 1) / QOBS_OPTIMAL_LANES * QOBS_OPTIMAL_LANES;
}

/* fmax and ceil are calls on some machines. */
static inline double optimal_larger(double a, double b) { return a > b ? a : b; }

static inline int32_t optimal_ceiling(double x) { return (int32_t)x + ((double)(int32_t)x < x); }

static inline double optimal_amax_of(const struct group_search *s)
{
    return optimal_larger((double)s->range.hi, -(double)s->range.lo);
}

static inline double optimal_limit_of(const struct optimal_params *p, int side)
{
    return p->e2m1 ? 6 : side ? (double)-p->quant_min : (double)p->quant_max;
}

/* The index of the largest candidate that is not above `scale`, or 0. */
size_t qobs_candidate_below(const struct group_search *s, double scale);

/* Finds the threshold of a side, from below: beyond it the elements of the side cost more than the bound. Their list
 * has the elements above it, or all, from the largest down. */
void qobs_find_threshold(struct group_search *s, int side);

/* No scale below it can win. Needs the thresholds, but for symmetric integers of one sign. */
double qobs_min_scale(const struct group_search *s);

/* The largest error of a point of the curve: elements that round differently, and rounding of the sums. */
double qobs_curve_slack(const struct group_search *s, double scale);

/* Three ways through the candidates: of e2m1 in float, one by one, and all at once. */
void qobs_search_e2m1(struct group_search *s);
void qobs_search_scales(struct group_search *s);
void qobs_search_curve(struct group_search *s);
