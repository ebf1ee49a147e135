/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Bounds leave out scales that cannot win:
 *   rows       the first rows of |T e|^2 already exceed the least error (see the kernel)
 *   clipping   |w_j| - 6 scale is at most reach[j] * |T e|; this grows as the scale falls
 *   zeros      above four times the largest magnitude all numbers are 0, and the smallest scale wins
 * All errors here are divided by the largest entry of H. */
#include "optimal/hessian_lanes.h"

#include <math.h>
#include <string.h>

#include "number/number.h"

enum { LANES = QOBS_HESSIAN_SCALES, SIDE = QOBS_HESSIAN_SIDE };

/* Limits within which floats neither overflow nor lose what matters. */
#define LEAST_AMAX 1e-9f
#define MOST_AMAX 1e9f
#define LEAST_SCALE 1e-30f
#define MOST_SCALE 1e30f

/* Shares of sum weight * (|w| + scale)^2: rounding of |T e| in float, and of an error in double. */
#define FLOAT_ROUNDING 0x1p-17
#define DOUBLE_ROUNDING 1e-12
/* Relative, of roots and of the sum of squares. */
#define MARGIN 0x1p-18

/* Candidates begin so far below the scale of the range. */
enum { BELOW_RANGE = 4 };

struct lanes {
    const struct hessian_factor *factor;
    const struct hessian_scales *scales;
    _Alignas(64) float w[SIDE]; /* in the order of T */
    double squares;             /* sum weight * w^2 */
    double least;               /* no candidate has less than the winner, which has at most this */
    size_t highest;             /* contender */
    struct hessian_contenders *contenders;
    float sum[HESSIAN_LANES_MOST]; /* of the contenders */
};

bool qobs_hessian_lanes_fit(const struct hessian_factor *f, const struct hessian_scales *s, float amax)
{
    return f->fits && s->count == HESSIAN_LANES_MOST && amax >= LEAST_AMAX && amax <= MOST_AMAX &&
           s->scale[0] >= LEAST_SCALE && s->scale[s->count - 1] <= MOST_SCALE;
}

/* sum weight * (|w| + scale)^2, or more. */
static double moment(const struct lanes *l, size_t k)
{
    const double scale = (double)l->scales->scale[k];
    return 2 * (l->squares + scale * scale * l->factor->total);
}

/* An error up to this one has |T e| at most the result, for scales of that moment. */
static double root_of(const struct lanes *l, double error, double m)
{
    return sqrt(error + (l->factor->ridge + DOUBLE_ROUNDING) * m) * (1 + MARGIN);
}

/* Sums up to this one may belong to a winner. */
static double most_sum(const struct lanes *l, double m)
{
    const double root = (root_of(l, l->least, m) + FLOAT_ROUNDING * sqrt(m)) * (1 + MARGIN);
    return root * root;
}

/* The error of a candidate with that sum is not above the result. */
static double most_error(double sum, double m)
{
    const double root = sqrt(sum) * (1 + MARGIN) + FLOAT_ROUNDING * sqrt(m);
    return root * root * (1 + MARGIN) + DOUBLE_ROUNDING * m;
}

/* Tries candidates [from, from + n), n <= 16. */
static void try_lanes(const struct kernel_table *kernels, struct lanes *l, size_t from, size_t n)
{
    float scale[LANES], sum[LANES];
    for (size_t k = 0; k < LANES; k++)
        scale[k] = l->scales->scale[from + (k < n ? k : n - 1)];
    const double m = moment(l, from + n - 1);
    const double limit = l->least < INFINITY ? most_sum(l, m) : 1e38;
    kernels->hessian_nearly(l->factor->rows, l->w, scale, (float)(limit * (1 + MARGIN)), sum);
    float least = sum[0];
    for (size_t k = 1; k < n; k++)
        least = sum[k] < least ? sum[k] : least;
    if ((double)least > limit)
        return;
    const double error = most_error((double)least, m);
    l->least = error < l->least ? error : l->least;
    const double most = most_sum(l, m);
    struct hessian_contenders *const c = l->contenders;
    for (size_t k = 0; k < n; k++)
        if ((double)sum[k] <= most) {
            l->sum[c->count] = sum[k];
            c->index[c->count++] = (uint8_t)(from + k);
            l->highest = from + k > l->highest ? from + k : l->highest;
        }
}

/* No smaller scale than the result can win if none from candidate k on has been left out. */
static double smallest_scale(const struct lanes *l, size_t k)
{
    const double root = root_of(l, l->least, moment(l, k));
    double most = 0;
    for (size_t j = 0; j < SIDE; j++) {
        const double over = fabs((double)l->w[j]) - l->factor->reach[j] * root;
        most = over > most ? over : most;
    }
    return most / 6 * (1 - MARGIN);
}

/* An index near that of the largest candidate below a scale. */
static size_t near_index(const struct hessian_scales *s, float scale, float global_scale)
{
    const uint32_t bits = bits_of_float(scale * global_scale);
    if (bits < s->lattice.regular)
        return qobs_hessian_scale_below(s, (double)scale);
    const int32_t k = (int32_t)(bits >> s->lattice.shift) - s->lattice.first;
    return k < s->lattice.last ? (size_t)k : (size_t)s->lattice.last;
}

/* Leaves contenders that may still win, and sorts them. */
static void drop_losers(struct lanes *l)
{
    struct hessian_contenders *const c = l->contenders;
    const double most = most_sum(l, moment(l, l->highest));
    size_t n = 0;
    for (size_t i = 0; i < c->count; i++) {
        if ((double)l->sum[i] > most)
            continue;
        const uint8_t index = c->index[i];
        size_t at = n++;
        for (; at > 0 && c->index[at - 1] > index; at--)
            c->index[at] = c->index[at - 1];
        c->index[at] = index;
    }
    c->count = n;
}

void qobs_hessian_lanes(const struct kernel_table *kernels, const struct hessian_factor *f,
                        const struct hessian_scales *s, const float *w, float amax, float global_scale,
                        struct hessian_contenders *contenders)
{
    struct lanes l = {.factor = f, .scales = s, .least = INFINITY, .contenders = contenders};
    double squares[4] = {0};
    for (size_t j = 0; j < SIDE; j += 4)
        for (size_t i = 0; i < 4; i++) {
            l.w[j + i] = w[f->order[j + i]];
            squares[i] += f->weight[j + i] * ((double)l.w[j + i] * (double)l.w[j + i]);
        }
    l.squares = (squares[0] + squares[1]) + (squares[2] + squares[3]);
    contenders->count = 0;
    const size_t zeros = near_index(s, 4 * amax, global_scale) + 3, end = zeros < s->count ? zeros : s->count;
    const size_t range = near_index(s, amax / 6, global_scale), first = range > BELOW_RANGE ? range - BELOW_RANGE : 0;
    size_t from = first + LANES > s->count ? s->count - LANES : first;
    for (size_t k = from; k < end; k += LANES)
        try_lanes(kernels, &l, k, end - k < LANES ? end - k : LANES);
    while (from > 0 && (double)s->scale[from - 1] >= smallest_scale(&l, from)) {
        const size_t n = from < LANES ? from : LANES;
        from -= n;
        try_lanes(kernels, &l, from, n);
    }
    drop_losers(&l);
}
