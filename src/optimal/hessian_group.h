/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The best scale and zero point of one group for errors e^T H e. For a fixed zero point and sign an element only steps
 * away from 0 as the scale shrinks. Each step is an event that belongs to the largest candidate at which it has
 * happened. Applied from the largest candidate down, the events give the error of every candidate:
 *   error = (constant - 2 s B) + s^2 C,  B = q.g,  C = q^T H q
 * One event costs a row of H, and one candidate costs nothing. */
#pragma once

#include "optimal/optimal.h"

/* The numbers that elements are quantized to, as steps away from 0. */
enum { HESSIAN_MOST_LEVELS = 256 };
struct hessian_levels {
    int count;
    float level[HESSIAN_MOST_LEVELS];  /* after the step */
    float length[HESSIAN_MOST_LEVELS]; /* of the step */
    struct hessian_step step[HESSIAN_MOST_LEVELS];
};
void qobs_hessian_levels(const struct optimal_params *params, float global_scale, struct hessian_levels *levels);

/* The candidates for the magnitude of a scale, ascending. */
struct hessian_scales {
    const float *scale;
    size_t count;
    struct hessian_lattice lattice;
};

struct hessian_scales qobs_hessian_scales(const struct optimal_params *params, const float *scale, size_t count);

/* The index of the largest candidate <= t; 0 without one. */
size_t qobs_hessian_scale_below(const struct hessian_scales *scales, double t);

struct hessian_group {
    const float *w;
    size_t n;
    const double *h;  /* H, n rows of `columns` entries, h_stride apart */
    size_t columns;   /* n, up to a multiple of 8; the rest is 0 */
    size_t h_stride;
    const double *g;  /* [columns] H w, less what other groups of the block take off */
    double constant;  /* w^T H w, or 0 if only differences of errors matter */
    int first, last;  /* zero points */
    size_t lowest;    /* the smallest candidate that can win */
};

/* Returns the smallest candidate that can win. energy: w^T H w; linear: H e of the other groups of the block (NULL: 0);
 * known: the error of some candidate, less w^T H w - 2 w.linear; largest: the largest entry of H. By Cauchy's
 * inequality (w^T H q)^2 <= energy * q^T H q. w^T H q is at most the largest step times P, the sum of (H w)_i where it
 * has the sign of w_i. So a candidate s with s^2 P'^2 / energy - 2 s (P' + L) > known for P' = P * largest step cannot
 * win; L is such a sum of -linear. If w^T H w cancels, so that it may be nothing but rounding, no candidate is left
 * out. */
size_t qobs_hessian_lowest(const struct optimal_params *params, const struct hessian_scales *scales, const float *w,
                           size_t n, const double *hw, const double *linear, double largest, double energy,
                           double known, int first, int last);

struct hessian_choice {
    size_t index; /* of the candidate */
    bool negative;
    int zero_point;
    double error; /* as the events give it; its rounding is about 1e-15 of w^T H w */
};

/* Memory of a search, for groups of up to that many elements. */
struct hessian_workspace {
    struct hessian_event *sorted;
    int32_t *buckets; /* [levels][elements] */
    uint32_t *end;    /* [candidates + 1] */
    double *b, *c;    /* [events + 1] */
    double *u;        /* [columns] */
};
void qobs_hessian_workspace_place(const struct optimal_params *params, size_t n, struct array_layout *layout,
                                  struct hessian_workspace *workspace);

/* The lowest error; of equal ones the smaller magnitude of the scale, then + before -, then the smaller zero point. */
struct hessian_choice qobs_hessian_group(const struct kernel_table *kernels, const struct optimal_params *params,
                                         const struct hessian_levels *levels, const struct hessian_scales *scales,
                                         const struct hessian_group *group, const struct hessian_workspace *workspace);

