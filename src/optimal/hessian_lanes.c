/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Bounds leave out scales that cannot win:
 *   rows       the first rows of |T e|^2 already exceed the least error (see the kernel)
 *   clipping   |w_j| - 6 scale is at most bound[j] * |T e|; this grows as the scale falls
 *   zeros      above four times the largest magnitude all numbers are 0, and the smallest scale wins
 * All errors here are divided by the largest entry of H. */
#include "optimal/hessian_search.h"

enum { LANES = QOBS_HESSIAN_SCALES, SIDE = QOBS_HESSIAN_SIDE };

/* ---- The factor -------------------------------------------------------------------------------------------------- */

/* Far above the rounding of doubles. Sums in float may need more: up to 16^4 times that. */
#define LEAST_RIDGE 1e-8
enum { RIDGES = 5 };

/* A column below this part of the largest is left out of T; weights that are larger by it make up for that and for
 * underflow of floats. */
#define LEAST_DIAGONAL 1e-40
#define SMALL_ENTRY 1e-19
#define ADDED_WEIGHT 1e-12

struct matrix {
    double entry[SIDE][SIDE];
};

static struct matrix with_ridge(const struct matrix *m, double ridge)
{
    struct matrix sum = *m;
    for (size_t j = 0; j < SIDE; j++)
        sum.entry[j][j] *= 1 + ridge;
    return sum;
}

/* Clears columns that are too small. False: H is not positive semidefinite, as their other entries show. */
static bool drop_small_columns(struct matrix *m)
{
    bool right = true;
    for (size_t j = 0; j < SIDE; j++) {
        right &= !(m->entry[j][j] < 0);
        for (size_t i = 0; i < SIDE && m->entry[j][j] <= LEAST_DIAGONAL; i++) {
            right &= i == j || fabs(m->entry[i][j]) <= SMALL_ENTRY;
            if (i != j)
                m->entry[i][j] = m->entry[j][i] = 0;
        }
    }
    for (size_t j = 0; j < SIDE; j++)
        m->entry[j][j] = m->entry[j][j] <= LEAST_DIAGONAL ? 0 : m->entry[j][j];
    return right;
}

static size_t smallest(const struct matrix *m, const bool among[SIDE])
{
    size_t at = 0;
    for (size_t j = 1; j < SIDE; j++)
        if (among[j] && (!among[at] || m->entry[j][j] < m->entry[at][at]))
            at = j;
    return at;
}

/* T with H = T^T T, the last row first: each step takes the smallest of what is left of the diagonal, so that large
 * ones remain for the first rows. Columns of zeros come last. False: there is a pivot that is not positive. */
static bool decompose(struct hessian_factor *f, struct matrix remainder, struct matrix *t)
{
    const struct matrix original = remainder;
    bool left[SIDE];
    memset(t, 0, sizeof *t);
    memset(left, true, sizeof left);
    for (size_t row = SIDE; row-- > 0;) {
        const size_t at = smallest(&remainder, left);
        left[at] = false;
        f->order[row] = (uint8_t)at;
        const double pivot = remainder.entry[at][at];
        if (original.entry[at][at] == 0)
            continue;
        if (!(pivot > f->ridge / 4 * original.entry[at][at]))
            return false;
        const double root = sqrt(pivot);
        for (size_t j = 0; j < SIDE; j++)
            t->entry[row][j] = left[j] || j == at ? remainder.entry[at][j] / root : 0;
        for (size_t i = 0; i < SIDE; i++)
            for (size_t j = 0; j < SIDE && left[i]; j++)
                remainder.entry[i][j] -= left[j] ? t->entry[row][i] * t->entry[row][j] : 0;
    }
    return true;
}

/* Columns in the order of the rows. */
static void reorder(const struct hessian_factor *f, struct matrix *t)
{
    const struct matrix from = *t;
    for (size_t row = 0; row < SIDE; row++)
        for (size_t j = 0; j < SIDE; j++)
            t->entry[row][j] = from.entry[row][f->order[j]];
}

/* The roots of the diagonal of the inverse of T^T T: with T e = y, e_j is row j of the inverse of T times y. */
static void find_bounds(struct hessian_factor *f, const struct matrix *t)
{
    struct matrix inverse = {{{0}}};
    for (size_t i = 0; i < SIDE; i++) {
        double sum = 0;
        for (size_t j = 0; j <= i && t->entry[i][i] > 0; j++) {
            double x = i == j ? 1 : 0;
            for (size_t k = j; k < i; k++)
                x -= t->entry[i][k] * inverse.entry[k][j];
            inverse.entry[i][j] = x / t->entry[i][i];
            sum += inverse.entry[i][j] * inverse.entry[i][j];
        }
        f->bound[i] = t->entry[i][i] > 0 ? sqrt(sum) * (1 + 1e-3) : 1e200;
    }
}

static void store_rows(struct hessian_factor *f, const struct matrix *t)
{
    size_t at = 0;
    for (size_t row = 0; row < SIDE; row += 4)
        for (size_t j = 0; j < row + 4; j++)
            for (size_t r = row; r < row + 4; r++)
                f->rows[at++] = (float)t->entry[r][j];
}

void qobs_hessian_factor(const double *h, size_t n, size_t stride, struct hessian_factor *f)
{
    struct matrix m = {{{0}}}, t = {{{0}}};
    memset(f, 0, sizeof *f);
    for (size_t i = 0; i < n; i++)
        f->largest = h[i * (stride + 1)] > f->largest ? h[i * (stride + 1)] : f->largest;
    if (!(f->largest > 0x1p-900 && f->largest < 0x1p900))
        return;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            m.entry[i][j] = (h[i * stride + j] + h[j * stride + i]) / 2 / f->largest;
    const struct matrix original = m;
    if (!drop_small_columns(&m))
        return;
    for (int i = 0; i < RIDGES && !f->fits; i++) {
        f->ridge = i == 0 ? LEAST_RIDGE : f->ridge * 16;
        f->fits = decompose(f, with_ridge(&m, f->ridge), &t);
    }
    if (!f->fits)
        return;
    reorder(f, &t);
    find_bounds(f, &t);
    store_rows(f, &t);
    for (size_t j = 0; j < SIDE; j++) {
        f->weight[j] = original.entry[f->order[j]][f->order[j]] + ADDED_WEIGHT;
        f->total += f->weight[j];
    }
}

/* ---- Candidates -------------------------------------------------------------------------------------------------- */

/* Limits within which floats neither overflow nor lose what matters. */
#define LEAST_AMAX 1e-9f
#define MOST_AMAX 1e9f
#define LEAST_SCALE 1e-30f
#define MOST_SCALE 1e30f

/* Parts of sums of weight * (|w| + scale)^2: rounding of |T e| in float, and of an error in double. */
#define FLOAT_ROUNDING 0x1p-17
#define DOUBLE_ROUNDING 1e-12
/* Relative, of roots and of the sum of squares. */
#define MARGIN 0x1p-18

/* Candidates begin so far below the scale of the range. */
enum { BELOW_RANGE = 2 };

struct lanes {
    const struct hessian_factor *factor;
    const struct scale_list *scales;
    _Alignas(64) float w[SIDE]; /* in the order of T */
    double squares;             /* sum weight * w^2 */
    double least;               /* the least error of all candidates is at most this */
    size_t highest;             /* candidate beside candidates */
    struct hessian_candidate_list *candidates;
    float sum[HESSIAN_LANES_MOST + 1]; /* of the candidates */
};

bool qobs_hessian_lanes_fit(const struct hessian_factor *f, const struct scale_list *s, float amax)
{
    return f->fits && s->count == HESSIAN_LANES_MOST && amax >= LEAST_AMAX && amax <= MOST_AMAX &&
           s->scale[0] >= LEAST_SCALE && s->scale[s->count - 1] <= MOST_SCALE;
}

/* Roundings are proportional to sum weight * (|w| + scale)^2 and to its root; the numbers hold for smaller scales, too.
 * Elements below scale / 4 become 0 without rounding, so that the sum is at most 25 times that of w^2. */
struct rounding_bound {
    double square, root;
};

static struct rounding_bound rounding_of(const struct lanes *l, size_t k)
{
    const double scale = (double)l->scales->scale[k], sum = 2 * (l->squares + scale * scale * l->factor->total);
    const double most = 25 * l->squares, square = sum < most ? sum : most;
    return (struct rounding_bound){square, sqrt(square)};
}

/* |T e| of an error is at most the result. */
static double root_of(const struct lanes *l, double error, double square)
{
    return sqrt(error + (l->factor->ridge + DOUBLE_ROUNDING) * square) * (1 + MARGIN);
}

/* A candidate with a larger sum does not have the least error. */
static double most_sum(const struct lanes *l, struct rounding_bound m)
{
    const double root = (root_of(l, l->least, m.square) + FLOAT_ROUNDING * m.root) * (1 + MARGIN);
    return root * root;
}

/* The error of a candidate with that sum is not above the result. */
static double most_error(double sum, struct rounding_bound m)
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
    const struct rounding_bound m = rounding_of(l, from + n - 1);
    const double limit = l->least < INFINITY ? most_sum(l, m) : 1e38;
    kernels->hessian_nearly(l->factor->rows, l->w, n < LANES ? scale : in_place, (float)(limit * (1 + MARGIN)), sum);
    const double least = (double)least_of(sum);
    if (least > limit)
        return;
    const double error = most_error(least, m);
    l->least = error < l->least ? error : l->least;
    const float most = (float)(most_sum(l, m) * (1 + MARGIN));
    size_t count = l->candidates->count;
    for (size_t k = 0; k < n; k++) { /* branches would be taken at random */
        l->sum[count] = sum[k];
        l->candidates->index[count] = (uint8_t)(from + k);
        count += sum[k] <= most;
    }
    l->highest = from + n - 1 > l->highest ? from + n - 1 : l->highest;
    l->candidates->count = count;
}

/* No smaller scale than the result can win if none from candidate k on has been left out. */
static double smallest_scale(const struct lanes *l, size_t k)
{
    const double root = root_of(l, l->least, rounding_of(l, k).square);
    double most[4] = {0};
    for (size_t j = 0; j < SIDE; j += 4)
        for (size_t i = 0; i < 4; i++) {
            const double over = fabs((double)l->w[j + i]) - l->factor->bound[j + i] * root;
            most[i] = over > most[i] ? over : most[i];
        }
    most[0] = most[0] > most[2] ? most[0] : most[2];
    most[1] = most[1] > most[3] ? most[1] : most[3];
    return (most[0] > most[1] ? most[0] : most[1]) / 6 * (1 - MARGIN);
}

/* Leaves candidates that may still win, and sorts them. */
static void drop_losers(struct lanes *l)
{
    struct hessian_candidate_list *const c = l->candidates;
    const double most = most_sum(l, rounding_of(l, l->highest));
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

void qobs_hessian_lanes(const struct kernel_table *kernels, const struct hessian_factor *f, const struct scale_list *s,
                        const float *w, float amax, struct hessian_candidate_list *candidates)
{
    struct lanes l; /* an initializer would clear its sums */
    double squares[4] = {0};
    l.factor = f;
    l.scales = s;
    l.least = INFINITY;
    l.highest = 0;
    l.candidates = candidates;
    for (size_t j = 0; j < SIDE; j += 4)
        for (size_t i = 0; i < 4; i++) {
            l.w[j + i] = w[f->order[j + i]];
            squares[i] += f->weight[j + i] * ((double)l.w[j + i] * (double)l.w[j + i]);
        }
    l.squares = (squares[0] + squares[1]) + (squares[2] + squares[3]);
    candidates->count = 0;
    const size_t zeros = qobs_scale_below(s, 4 * (double)amax) + 3, end = zeros < s->count ? zeros : s->count;
    const size_t range = qobs_scale_below(s, (double)amax / 6), first = range > BELOW_RANGE ? range - BELOW_RANGE : 0;
    size_t from = first + LANES > s->count ? s->count - LANES : first;
    for (size_t k = from; k < end; k += LANES)
        try_lanes(kernels, &l, k, end - k < LANES ? end - k : LANES);
    while (from > 0 && (double)s->scale[from - 1] >= smallest_scale(&l, from)) {
        const size_t n = from < LANES ? from : LANES;
        from -= n;
        try_lanes(kernels, &l, from, n);
    }
    if (candidates->count > 1)
        drop_losers(&l);
}
