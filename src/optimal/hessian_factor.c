/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "optimal/hessian_factor.h"

#include <math.h>
#include <string.h>

enum { SIDE = QOBS_HESSIAN_SIDE };

/* Far above the rounding of doubles. Sums in float may need more: up to 16^4 times that. */
#define LEAST_RIDGE 1e-8
enum { RIDGES = 5 };

/* A column below this share of the largest does not enter T; weights that are larger by it make up for that and for
 * underflow of floats. */
#define LEAST_SHARE 1e-40
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
        for (size_t i = 0; i < SIDE && m->entry[j][j] <= LEAST_SHARE; i++) {
            right &= i == j || fabs(m->entry[i][j]) <= SMALL_ENTRY;
            if (i != j)
                m->entry[i][j] = m->entry[j][i] = 0;
        }
    }
    for (size_t j = 0; j < SIDE; j++)
        m->entry[j][j] = m->entry[j][j] <= LEAST_SHARE ? 0 : m->entry[j][j];
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
static void find_reach(struct hessian_factor *f, const struct matrix *t)
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
        f->reach[i] = t->entry[i][i] > 0 ? sqrt(sum) * (1 + 1e-3) : 1e200;
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
    find_reach(f, &t);
    store_rows(f, &t);
    for (size_t j = 0; j < SIDE; j++) {
        f->weight[j] = original.entry[f->order[j]][f->order[j]] + ADDED_WEIGHT;
        f->total += f->weight[j];
    }
}
