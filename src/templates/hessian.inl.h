/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search that minimises e^T H e, and descent over codes; included by src/ISA/hessian.c with its ENTRY after
 * simd.h and tuning.h of that folder. But for errors of 16 scales at once it is plain C, and flags decide how wide
 * the compiler makes the loops.
 *
 * Accumulators: the caller's doubles, one an entry; each operation is rounded, none is fused. Errors of 16 scales at
 *   once are floats and differ between instruction sets: a product and a sum are fused where that is fast.
 * Overflow: none below 1e300; the caller's matrices are finite. w / scale may be infinite and is limited.
 * Tails: columns are a multiple of 8, padded by the caller with zeros.
 * In flight: a product has a tile of HESSIAN_ROWS x HESSIAN_COLUMNS sums in registers. HESSIAN_STEPS events are applied
 *   together, so that u is loaded and stored once for that many rows of H. The first three add to u at the
 *   elements of the later ones on the side, in the same order as in u itself. Four rows of T are in flight for
 *   16 scales; the next four quotients do not depend on them. The steps of ROUND_TOGETHER columns of codes enter
 *   g of later columns together, in their order; g of 16 rows stays in L1.
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h). */
#include <string.h>

#include "kernels/kernel_hessian.h"
#include "number/grid.h"
#include "templates/inline.h"

enum { HESSIAN_STEPS = 4 };

typedef double hessian_vector __attribute__((vector_size(HESSIAN_LANES * sizeof(double))));
typedef hessian_vector hessian_vector_anywhere __attribute__((aligned(8), may_alias));

/* u[j] = (((u[j] + d[0] * h0[j]) + d[1] * h1[j]) + d[2] * h2[j]) + d[3] * h3[j] */
ALWAYS_INLINE void add_rows_4(double *restrict u, const double *restrict h0, const double *restrict h1,
                              const double *restrict h2, const double *restrict h3, const double d[4], size_t columns)
{
    const double d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
    for (size_t j = 0; j < columns; j++) {
        double s = u[j];
        s += d0 * h0[j];
        s += d1 * h1[j];
        s += d2 * h2[j];
        s += d3 * h3[j];
        u[j] = s;
    }
}

ALWAYS_INLINE void add_row(double *restrict u, const double *restrict h, double d, size_t columns)
{
    for (size_t j = 0; j < columns; j++)
        u[j] += d * h[j];
}

ALWAYS_INLINE hessian_vector hessian_load(const double *p) { return *(const hessian_vector_anywhere *)(const void *)p; }

ALWAYS_INLINE void hessian_store(double *p, hessian_vector v) { *(hessian_vector_anywhere *)(void *)p = v; }

enum { HESSIAN_VECTORS = HESSIAN_COLUMNS / HESSIAN_LANES };

/* Rows of x and vectors of columns of H, at most HESSIAN_ROWS and HESSIAN_VECTORS: sums in registers. Both are
 * constants. */
ALWAYS_INLINE void hessian_tile(int rows, int vectors, const double *x, size_t x_stride, const double *h,
                                size_t h_stride, size_t inner, double *sum, size_t sum_stride)
{
    hessian_vector s[HESSIAN_ROWS * HESSIAN_VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            s[r * vectors + v] = hessian_load(sum + (size_t)r * sum_stride + v * HESSIAN_LANES);
    for (size_t i = 0; i < inner; i++, h += h_stride) {
        hessian_vector y[HESSIAN_VECTORS];
        for (int v = 0; v < vectors; v++)
            y[v] = hessian_load(h + v * HESSIAN_LANES);
        for (int r = 0; r < rows; r++) {
            const double f = x[(size_t)r * x_stride + i];
            for (int v = 0; v < vectors; v++)
                s[r * vectors + v] += f * y[v];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            hessian_store(sum + (size_t)r * sum_stride + v * HESSIAN_LANES, s[r * vectors + v]);
}

/* All rows of some vectors of columns. */
ALWAYS_INLINE void hessian_columns(int vectors, const double *x, size_t x_stride, size_t rows, const double *h,
                                   size_t h_stride, size_t inner, double *sum, size_t sum_stride)
{
    for (; rows >= HESSIAN_ROWS; rows -= HESSIAN_ROWS, x += HESSIAN_ROWS * x_stride, sum += HESSIAN_ROWS * sum_stride)
        hessian_tile(HESSIAN_ROWS, vectors, x, x_stride, h, h_stride, inner, sum, sum_stride);
    for (; rows > 0; rows--, x += x_stride, sum += sum_stride)
        hessian_tile(1, vectors, x, x_stride, h, h_stride, inner, sum, sum_stride);
}

QOBS_HESSIAN_PRODUCT(ENTRY(qobs_hessian_product))
{
    CLEARS_UPPER_HALVES
    size_t j = 0;
    for (; j + HESSIAN_COLUMNS <= columns; j += HESSIAN_COLUMNS)
        hessian_columns(HESSIAN_VECTORS, x, x_stride, rows, h + j, h_stride, inner, sum + j, sum_stride);
    for (; j + 16 <= columns; j += 16)
        hessian_columns(16 / HESSIAN_LANES, x, x_stride, rows, h + j, h_stride, inner, sum + j, sum_stride);
    if (j < columns)
        hessian_columns(8 / HESSIAN_LANES, x, x_stride, rows, h + j, h_stride, inner, sum + j, sum_stride);
}

/* `columns` may be a constant. */
ALWAYS_INLINE void hessian_steps(const double *h, size_t h_stride, size_t columns, const double *g,
                                 const struct hessian_event *events, size_t count, double *u, double *b, double *c)
{
    double linear = b[0], square = c[0];
    size_t e = 0;
    for (; e + HESSIAN_STEPS <= count; e += HESSIAN_STEPS) {
        const double *row[HESSIAN_STEPS];
        double d[HESSIAN_STEPS];
        for (int m = 0; m < HESSIAN_STEPS; m++) {
            const size_t at = events[e + (size_t)m].element;
            row[m] = h + at * h_stride;
            d[m] = (double)events[e + (size_t)m].step;
            double own = u[at];
            for (int p = 0; p < m; p++)
                own += d[p] * row[p][at];
            linear += d[m] * g[at];
            square += (2 * d[m]) * own + (d[m] * d[m]) * row[m][at];
            b[e + (size_t)m + 1] = linear;
            c[e + (size_t)m + 1] = square;
        }
        add_rows_4(u, row[0], row[1], row[2], row[3], d, columns);
    }
    for (; e < count; e++) {
        const size_t at = events[e].element;
        const double d = (double)events[e].step, *const row = h + at * h_stride;
        linear += d * g[at];
        square += (2 * d) * u[at] + (d * d) * row[at];
        b[e + 1] = linear;
        c[e + 1] = square;
        add_row(u, row, d, columns);
    }
}

QOBS_HESSIAN_STEPS(ENTRY(qobs_hessian_steps))
{
    CLEARS_UPPER_HALVES
    if (columns == 16)
        hessian_steps(h, h_stride, 16, g, events, count, u, b, c);
    else
        hessian_steps(h, h_stride, columns, g, events, count, u, b, c);
}

QOBS_HESSIAN_RESIDUAL(ENTRY(qobs_hessian_residual))
{
    CLEARS_UPPER_HALVES
    if (number->e2m1) {
        for (size_t i = 0; i < n; i++) { /* as grid_round_float, in a form that compilers vectorize */
            const float x = w[i] / scale, a = float_of_bits(bits_of_float(x) & 0x7fffffff), limited = a > 6 ? 6 : a;
            const int32_t power = (int32_t)(bits_of_float(limited) & 0x7f800000), one = 0x3f800000;
            const float shifter = float_of_bits((uint32_t)(power > one ? power : one) + (22 << 23));
            const float q = (limited + shifter) - shifter;
            const double signed_q = (double)float_of_bits(bits_of_float(q) | (bits_of_float(x) & 0x80000000));
            e[i] = signed_q * (double)scale - (double)w[i];
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float q = w[i] / scale + zero_point;
        q = q < number->quant_min ? number->quant_min : q;
        q = q > number->quant_max ? number->quant_max : q;
        e[i] = (double)(grid_round_integer_float(q) - zero_point) * (double)scale - (double)w[i];
    }
}

/* Roundings of fake-quantize differ from those of a bucket by at most 64 units in the last place. */
enum { HESSIAN_NEAR = 128 };

QOBS_HESSIAN_BUCKETS(ENTRY(qobs_hessian_buckets))
{
    CLEARS_UPPER_HALVES
    const int shift = lattice->shift;
    const int32_t first = lattice->first, last = lattice->last, odd = even ? 0 : 1;
    const uint32_t fraction = (UINT32_C(1) << shift) - 1, half = (fraction + 1) / 2;
    const uint32_t regular = lattice->regular, exact = lattice->exact ? UINT32_MAX : 0;
    int32_t most = INT32_MIN;
    for (size_t i = 0; i < n; i++) {
        const float a = float_of_bits(bits_of_float(w[i]) & 0x7fffffff);
        const uint32_t bits = bits_of_float(a * step->scaled), nearest = (bits + half) >> shift;
        const uint32_t tie = (float_of_bits(nearest << shift) * step->middle == a ? UINT32_MAX : 0) & exact;
        const uint32_t near = ((bits + HESSIAN_NEAR) & fraction) < 2 * HESSIAN_NEAR ? UINT32_MAX : 0;
        const uint32_t below = bits < regular ? UINT32_MAX : 0;
        int32_t k = (int32_t)(tie ? nearest - (uint32_t)odd : bits >> shift) - first;
        k = k < last ? k : last;
        k = (near | below) & ~tie ? QOBS_HESSIAN_UNDECIDED : k;
        k = a > 0 ? k : -1;
        bucket[i] = k;
        most = k > most ? k : most;
    }
    return most;
}

/* ---- 16 scales at once, a lane each ------------------------------------------------------------------------------ */

/* a * b + c; an instruction set may have its own. */
#ifndef HESSIAN_MULTIPLY_ADD
#define HESSIAN_MULTIPLY_ADD f32x16_fma
#endif

/* Four elements from number `first` on: their errors to e, and the sum with the squares of their rows. */
DEEP_INLINE f32x16 nearly_rows(size_t first, const float *factor, const float *w, const float *signed_scale, f32x16 *e,
                               f32x16 sum)
{
    const f32x16 scale = f32x16_load(signed_scale), six = f32x16_splat(6), one = f32x16_splat(1);
    const f32x16 digits = f32x16_splat(0x1p22f), zero = f32x16_splat(0);
    f32x16 y[4] = {zero, zero, zero, zero};
    for (size_t i = first; i < first + 4; i++) {
        const uint32_t bits = bits_of_float(w[i]);
        const f32x16 a = f32x16_splat(float_of_bits(bits & 0x7fffffff));
        const f32x16 limited = f32x16_min_bits(f32x16_div(a, scale), six);
        const f32x16 rounder = f32x16_mul(f32x16_max_bits(f32x16_power_of_2(limited), one), digits);
        const f32x16 q = f32x16_sub(f32x16_add(limited, rounder), rounder);
        e[i] = HESSIAN_MULTIPLY_ADD(q, f32x16_load(signed_scale + (bits >> 31) * 16), f32x16_splat(-w[i]));
    }
    for (size_t j = 0; j < first + 4; j++, factor += 4)
        for (size_t r = 0; r < 4; r++)
            y[r] = HESSIAN_MULTIPLY_ADD(f32x16_splat(factor[r]), e[j], y[r]);
    for (size_t r = 0; r < 4; r++)
        sum = HESSIAN_MULTIPLY_ADD(y[r], y[r], sum);
    return sum;
}

QOBS_HESSIAN_NEARLY(ENTRY(qobs_hessian_nearly))
{
    CLEARS_UPPER_HALVES
    _Alignas(64) float signed_scale[2 * QOBS_HESSIAN_SCALES];
    f32x16 e[QOBS_HESSIAN_SIDE];
    const f32x16 most = f32x16_splat(bound);
    for (size_t k = 0; k < QOBS_HESSIAN_SCALES; k++) {
        signed_scale[k] = scale[k];
        signed_scale[QOBS_HESSIAN_SCALES + k] = -scale[k];
    }
    f32x16 s = nearly_rows(0, factor, w, signed_scale, e, f32x16_splat(0));
    if (f32x16_any_at_most(s, most))
        s = nearly_rows(4, factor + 16, w, signed_scale, e, s);
    if (f32x16_any_at_most(s, most))
        s = nearly_rows(8, factor + 16 + 32, w, signed_scale, e, s);
    if (f32x16_any_at_most(s, most))
        s = nearly_rows(12, factor + 16 + 32 + 48, w, signed_scale, e, s);
    f32x16_store(sum, s);
}

/* ---- Descent over codes, 16 rows at once ------------------------------------------------------------------------- */

enum { ROUND_ROWS = 16, ROUND_TOGETHER = 8, ROUND_VECTORS = ROUND_ROWS / HESSIAN_LANES };

/* Values of a column that its steps share, beside its rows. */
struct round_step {
    const struct code_grid *grid;
    double own, inverse, doubt, root;
};

/* A loop over numbers in which one over rows becomes vectors. */
ALWAYS_INLINE void round_to_book(const struct code_book *book, float *restrict n)
{
    float nearest[ROUND_ROWS];
    for (size_t r = 0; r < ROUND_ROWS; r++)
        nearest[r] = book->number[0];
    for (size_t k = 0; k + 1 < CODE_BOOK; k++)
        for (size_t r = 0; r < ROUND_ROWS; r++)
            nearest[r] = n[r] > book->middle[k] ? book->number[k + 1] : nearest[r];
    memcpy(n, nearest, sizeof nearest);
}

ALWAYS_INLINE void round_to_grid(const struct code_grid *by, float *restrict n)
{
    const struct grid_float grid = {by->min_normal, by->shifter};
    const float quant_min = by->quant_min, quant_max = by->quant_max;
    for (size_t r = 0; r < ROUND_ROWS; r++) {
        const float least = n[r] < quant_min ? quant_min : n[r];
        n[r] = grid_round_float(grid, least > quant_max ? quant_max : least);
    }
}

/* A column: its steps to `step`, 0 where a row takes none, and the number of steps of each row to `taken`. */
ALWAYS_INLINE void round_column(const struct round_step *c, const float *restrict scale,
                                const float *restrict zero_point, const float *restrict w, float *restrict q,
                                float *restrict d, const double *restrict g, double *restrict error_bound,
                                double *restrict change, double *restrict step, double *restrict taken)
{
    const double own = c->own, inverse = c->inverse, doubt = c->doubt, root = c->root;
    float n[ROUND_ROWS], e[ROUND_ROWS], better[ROUND_ROWS];
    for (size_t r = 0; r < ROUND_ROWS; r++)
        n[r] = (float)((((double)w[r] - (double)d[r]) + g[r] * inverse) / (double)scale[r] + (double)zero_point[r]);
    if (c->grid->book)
        round_to_book(c->grid->book, n);
    else
        round_to_grid(c->grid, n);
    for (size_t r = 0; r < ROUND_ROWS; r++)
        e[r] = (float)((double)w[r] - ((double)n[r] - (double)zero_point[r]) * (double)scale[r]);
    for (size_t r = 0; r < ROUND_ROWS; r++) {
        const double now = (double)d[r], by = (double)e[r] - now, rise = by * (2 * g[r] + own * by);
        const double nearer = (fabs((double)e[r]) - fabs(now)) * root,
                     least = (2 * fabs(by)) * (doubt * error_bound[r]);
        const uint64_t mask = -rise > least ? UINT64_MAX : 0; /* with conditions gcc 12 makes no vectors */
        const double one = double_of_bits(bits_of_double(1) & mask);
        step[r] = double_of_bits(bits_of_double(by) & mask);
        taken[r] += one;
        change[r] += double_of_bits(bits_of_double(rise) & mask);
        error_bound[r] += double_of_bits(bits_of_double(nearer) & mask);
        better[r] = (float)one;
    }
    for (size_t r = 0; r < ROUND_ROWS; r++) {
        q[r] = better[r] > 0 ? n[r] : q[r];
        d[r] = better[r] > 0 ? e[r] : d[r];
    }
}

/* g of a later column after `count` steps, a constant. */
ALWAYS_INLINE void round_update(double *g, const double *step, size_t count, const float *h, size_t h_stride)
{
    hessian_vector s[ROUND_VECTORS];
    for (int v = 0; v < ROUND_VECTORS; v++)
        s[v] = hessian_load(g + v * HESSIAN_LANES);
    for (size_t k = 0; k < count; k++) {
        const double factor = (double)h[k * h_stride];
        for (int v = 0; v < ROUND_VECTORS; v++)
            s[v] += factor * hessian_load(step + k * ROUND_ROWS + v * HESSIAN_LANES);
    }
    for (int v = 0; v < ROUND_VECTORS; v++)
        hessian_store(g + v * HESSIAN_LANES, s[v]);
}

QOBS_HESSIAN_ROUND(ENTRY(qobs_hessian_round))
{
    CLEARS_UPPER_HALVES
    double local[QOBS_ROUND_COLUMNS * ROUND_ROWS], step[ROUND_TOGETHER * ROUND_ROWS], all = 0;
    for (size_t row = 0; row < rows; row += ROUND_ROWS) {
        double taken[ROUND_ROWS] = {0};
        for (size_t k = 0; k < columns; k++)
            memcpy(local + k * ROUND_ROWS, g + k * stride + row, ROUND_ROWS * sizeof *g);
        for (size_t first = 0; first < columns; first += ROUND_TOGETHER) {
            const size_t end = columns - first < ROUND_TOGETHER ? columns : first + ROUND_TOGETHER;
            memset(step, 0, sizeof step);
            for (size_t k = first; k < end; k++) {
                const double own = (double)h[k * h_stride + k], root = sqrt(own > 0 ? own : 0);
                const struct round_step c = {grid, own, 1 / own, QOBS_ROUND_DOUBT * root, root};
                double *const by = step + (k - first) * ROUND_ROWS;
                if (own > 0)
                    round_column(&c, column[k].scale + row, column[k].zero_point + row, w + k * stride + row,
                                 q + k * stride + row, d + k * stride + row, local + k * ROUND_ROWS, error_bound + row,
                                 change + row, by, taken);
                for (size_t j = k + 1; j < end; j++)
                    round_update(local + j * ROUND_ROWS, by, 1, h + k * h_stride + j, h_stride);
            }
            for (size_t j = end; j < columns; j++)
                round_update(local + j * ROUND_ROWS, step, ROUND_TOGETHER, h + first * h_stride + j, h_stride);
        }
        for (size_t r = 0; r < ROUND_ROWS; r++)
            all += taken[r];
    }
    return (size_t)all;
}
