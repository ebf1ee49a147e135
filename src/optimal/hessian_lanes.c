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

/* Shares of sums of weight * (|w| + scale)^2: rounding of |T e| in float, and of an error in double. */
#define FLOAT_ROUNDING 0x1p-17
#define DOUBLE_ROUNDING 1e-12
/* Relative, of roots and of the sum of squares. */
#define MARGIN 0x1p-18

/* Candidates begin so far below the scale of the range. */
enum { BELOW_RANGE = 2 };

struct lanes {
    const struct hessian_factor *factor;
    const struct hessian_scales *scales;
    _Alignas(64) float w[SIDE]; /* in the order of T */
    double squares;             /* sum weight * w^2 */
    double least;               /* the least error of all candidates is at most this */
    size_t highest;             /* candidate beside contenders */
    struct hessian_contenders *contenders;
    float sum[HESSIAN_LANES_MOST + 1]; /* of the contenders */
};

bool qobs_hessian_lanes_fit(const struct hessian_factor *f, const struct hessian_scales *s, float amax)
{
    return f->fits && s->count == HESSIAN_LANES_MOST && amax >= LEAST_AMAX && amax <= MOST_AMAX &&
           s->scale[0] >= LEAST_SCALE && s->scale[s->count - 1] <= MOST_SCALE;
}

/* Roundings are proportional to sum weight * (|w| + scale)^2 and to its root; the numbers hold for smaller scales, too.
 * Elements below scale / 4 become 0 without rounding, so that the sum is at most 25 times that of w^2. */
struct moment {
    double square, root;
};

static struct moment moment_of(const struct lanes *l, size_t k)
{
    const double scale = (double)l->scales->scale[k], sum = 2 * (l->squares + scale * scale * l->factor->total);
    const double most = 25 * l->squares, square = sum < most ? sum : most;
    return (struct moment){square, sqrt(square)};
}

/* |T e| of an error is at most the result. */
static double root_of(const struct lanes *l, double error, double moment)
{
    return sqrt(error + (l->factor->ridge + DOUBLE_ROUNDING) * moment) * (1 + MARGIN);
}

/* A candidate with a larger sum does not have the least error. */
static double most_sum(const struct lanes *l, struct moment m)
{
    const double root = (root_of(l, l->least, m.square) + FLOAT_ROUNDING * m.root) * (1 + MARGIN);
    return root * root;
}

/* The error of a candidate with that sum is not above the result. */
static double most_error(double sum, struct moment m)
{
    const double root = sqrt(sum) * (1 + MARGIN) + FLOAT_ROUNDING * m.root;
    return root * root * (1 + MARGIN) + DOUBLE_ROUNDING * m.square;
}

static float least_of(const float sum[LANES])
{
    float least[8];
    for (size_t k = 0; k < 8; k++)
        least[k] = sum[k] < sum[k + 8] ? sum[k] : sum[k + 8];
    for (size_t apart = 4; apart > 0; apart /= 2)
        for (size_t k = 0; k < apart; k++)
            least[k] = least[k] < least[k + apart] ? least[k] : least[k + apart];
    return least[0];
}

/* Tries candidates [from, from + n), n <= 16. Lanes that are left repeat the last one. */
static void try_lanes(const struct kernel_table *kernels, struct lanes *l, size_t from, size_t n)
{
    float scale[LANES], sum[LANES];
    const float *const in_place = l->scales->scale + from;
    for (size_t k = 0; k < LANES && n < LANES; k++)
        scale[k] = in_place[k < n ? k : n - 1];
    const struct moment m = moment_of(l, from + n - 1);
    const double limit = l->least < INFINITY ? most_sum(l, m) : 1e38;
    kernels->hessian_nearly(l->factor->rows, l->w, n < LANES ? scale : in_place, (float)(limit * (1 + MARGIN)), sum);
    const double least = (double)least_of(sum);
    if (least > limit)
        return;
    const double error = most_error(least, m);
    l->least = error < l->least ? error : l->least;
    const float most = (float)(most_sum(l, m) * (1 + MARGIN));
    size_t count = l->contenders->count;
    for (size_t k = 0; k < n; k++) { /* branches would be taken at random */
        l->sum[count] = sum[k];
        l->contenders->index[count] = (uint8_t)(from + k);
        count += sum[k] <= most;
    }
    l->highest = from + n - 1 > l->highest ? from + n - 1 : l->highest;
    l->contenders->count = count;
}

/* No smaller scale than the result can win if none from candidate k on has been left out. */
static double smallest_scale(const struct lanes *l, size_t k)
{
    const double root = root_of(l, l->least, moment_of(l, k).square);
    double most[4] = {0};
    for (size_t j = 0; j < SIDE; j += 4)
        for (size_t i = 0; i < 4; i++) {
            const double over = fabs((double)l->w[j + i]) - l->factor->reach[j + i] * root;
            most[i] = over > most[i] ? over : most[i];
        }
    most[0] = most[0] > most[2] ? most[0] : most[2];
    most[1] = most[1] > most[3] ? most[1] : most[3];
    return (most[0] > most[1] ? most[0] : most[1]) / 6 * (1 - MARGIN);
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
    const double most = most_sum(l, moment_of(l, l->highest));
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
    struct lanes l; /* an initializer would clear its sums */
    double squares[4] = {0};
    l.factor = f;
    l.scales = s;
    l.least = INFINITY;
    l.highest = 0;
    l.contenders = contenders;
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
    if (contenders->count > 1)
        drop_losers(&l);
}
