/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels of the Gram statistic and of the search that minimises e^T H e. Matrices are row after row. Every entry has
 * a sum of its own in a fixed order, so that vectors along a row keep the bits. Only the Gram fuses products and
 * sums. */
#pragma once

#include "kernels/kernel_optimal.h"

/* The Gram of columns of floats: sum[j * sum_stride + k] += sum over tokens of a[j] * b[k], for j < rows and
 * k < columns. Token t starts at a + t * stride and b + t * stride. Sums are float, in the order of the tokens from +0,
 * each fused with its product; the total is added to the double. upper: only entries with j <= k change; a is then b.
 * b is aligned to 64 bytes, stride is a multiple of 16, and b has zeros up to a multiple of 16 columns. */
#define QOBS_GRAM(name)                                                                                                \
    void name(const float *a, const float *b, size_t stride, size_t tokens, size_t rows, size_t columns, bool upper,   \
              double *sum, size_t sum_stride)

/* sum[r * sum_stride + j] += sum over i < inner, in that order, of x[r * x_stride + i] * h[i * h_stride + j], for
 * r < rows and j < columns, a multiple of 8. Each addition is to the sum itself. */
#define QOBS_HESSIAN_PRODUCT(name)                                                                                     \
    void name(const double *x, size_t x_stride, size_t rows, const double *h, size_t h_stride, size_t inner,           \
              size_t columns, double *sum, size_t sum_stride)

/* A quantized element moves by `step` quanta. */
struct hessian_event {
    uint32_t element;
    float step;
};

/* Applies events in order to a vector q that is 0, with u = H q, and writes B = q.g and C = q^T H q after each:
 *   b = b + step * g[i];  c = c + ((2 * step) * u[i] + (step * step) * h[i][i]);  u[j] = u[j] + step * h[i][j]
 * b[0], c[0] are the values before the first event, b[e + 1], c[e + 1] those after event e. h: rows of `columns`
 * entries, a multiple of 8, h_stride apart. u: `columns` numbers, input and output. */
#define QOBS_HESSIAN_STEPS(name)                                                                                       \
    void name(const double *h, size_t h_stride, size_t columns, const double *g, const struct hessian_event *events,   \
              size_t count, double *u, double *b, double *c)

/* A step of quantized elements away from 0: its middle, 1 / middle, and that times the factor of the lattice. */
struct hessian_step {
    float middle, inverse, scaled;
};

/* Candidates whose bits, times a factor, are (first + k) << shift, from the number with the bits `regular` on. exact:
 * the factor is 1, and middles times candidates are exact. */
struct hessian_lattice {
    int shift;
    int32_t first, last; /* last: the largest k */
    uint32_t regular;
    bool exact;
};

/* bucket[i] = the largest k at which element i has taken the step, for n elements, a multiple of 16: w / candidate
 * reaches the middle. `even`: a tie goes away from 0. At most last; any number below 0 for those that never take it.
 * QOBS_HESSIAN_UNDECIDED: the middle is so near to a candidate that roundings decide. Returns the largest of these. */
#define QOBS_HESSIAN_UNDECIDED INT32_MAX
#define QOBS_HESSIAN_BUCKETS(name)                                                                                     \
    int32_t name(const struct hessian_lattice *lattice, const struct hessian_step *step, bool even, const float *w,    \
                 size_t n, int32_t *bucket)

/* e = (q - zero_point) * scale - w in double for n elements. q is w / scale + zero_point, one float rounding each,
 * limited and rounded to the nearest number, ties to even. */
#define QOBS_HESSIAN_RESIDUAL(name)                                                                                    \
    void name(const struct optimal_number *number, const float *w, size_t n, float scale, float zero_point, double *e)

/* e^T H e of a group of e2m1 numbers for 16 scales at once, in float: sum[k] = |T e|^2 for positive scale[k]. T is
 * lower triangular, with H = T^T T; its entries are at most 1. factor: four rows after each other, column after column
 * up to the last of the four, that is 4, 8, 12 and 16 columns of four entries. w: 16 elements in the order of T. Sums
 * stop after four rows if all are above `bound`: the remaining rows only add to them.
 * With u = 2^-24 and m = |w| + scale, or |w| if it becomes 0, |T e| is within 84 u sqrt(sum H_jj m_j^2) + 2e-22 of the
 * exact one, and its square has a relative error of 18 u more. Instruction sets may differ in what they round. */
enum { QOBS_HESSIAN_SCALES = 16, QOBS_HESSIAN_SIDE = 16, QOBS_HESSIAN_FACTOR = 4 * (4 + 8 + 12 + 16) };
#define QOBS_HESSIAN_NEARLY(name)                                                                                      \
    void name(const float factor[QOBS_HESSIAN_FACTOR], const float w[QOBS_HESSIAN_SIDE],                               \
              const float scale[QOBS_HESSIAN_SCALES], float bound, float sum[QOBS_HESSIAN_SCALES])

/* Numbers without a rule, in rising order. number[k + 1] is the nearest from above middle[k] on; after the last middle
 * follows infinity. */
enum { CODE_BOOK = 16 };
struct code_book {
    float number[CODE_BOOK], middle[CODE_BOOK - 1];
};

/* The numbers that codes stand for: limits, and the grid_float (number/grid.h) between them, or those of a book. */
struct code_grid {
    float quant_min, quant_max, min_normal;
    uint32_t shifter;
    const struct code_book *book; /* NULL: none */
};

/* Scales and zero points of a column, one for each row. */
struct code_column {
    const float *scale, *zero_point;
};

/* Descent over the codes of a block of columns, whose errors are weighed by H: column k after column k - 1, each row by
 * itself. w: numbers; q: quantized numbers; d = w - (q - zero_point) * scale as float: all of `columns` columns of
 * `rows` rows, a multiple of 16, `stride` apart. g: D H of these columns, as far apart. h: H of the block, rows
 * h_stride apart. With an operation of double for each of these, a column with h[k][k] > 0 makes x = float(((w - d) +
 * g[k] * (1 / h[k][k])) / scale + zero_point), limited, rounded to the grid or to the book, e = float(w - (x -
 * zero_point) * scale) step = e - d;  rise = step * (2 * g[k] + h[k][k] * step) If -rise > 2 * |step| *
 * (QOBS_ROUND_DOUBT * sqrt(h[k][k]) * error_bound), the row takes the step: q = x;  d = e;  change += rise; error_bound
 * += (|e| - |d|) * sqrt(h[k][k]) It is 0 for other rows and in columns without h[k][k] > 0. Then g[j] += step * h[k][j]
 * for each later column; the caller's g stays. error_bound: at least the sum of |d| * sqrt(H_jj) over all columns j of
 * a row. Returns the number of steps. g is a sum of doubles, each a float sum of at most QOBS_ROUND_COLUMNS fused
 * products. That is the doubt: each step lowers d H d^T, whatever the rounding. */
enum { QOBS_ROUND_COLUMNS = 128 };
#define QOBS_ROUND_DOUBT 0x1.2p-17
#define QOBS_HESSIAN_ROUND(name)                                                                                       \
    size_t name(const struct code_grid *grid, const float *h, size_t h_stride, size_t columns,                         \
                const struct code_column *column, size_t rows, size_t stride, const float *w, float *q, float *d,      \
                const double *g, double *error_bound, double *change)

#define QOBS_HESSIAN_SLOTS(EACH, with)                                                                                 \
    EACH(ONE, gram, QOBS_GRAM, with)                                                                                   \
    EACH(ONE, hessian_product, QOBS_HESSIAN_PRODUCT, with)                                                             \
    EACH(ONE, hessian_steps, QOBS_HESSIAN_STEPS, with)                                                                 \
    EACH(ONE, hessian_residual, QOBS_HESSIAN_RESIDUAL, with)                                                           \
    EACH(ONE, hessian_buckets, QOBS_HESSIAN_BUCKETS, with)                                                             \
    EACH(ONE, hessian_nearly, QOBS_HESSIAN_NEARLY, with)                                                               \
    EACH(ONE, hessian_round, QOBS_HESSIAN_ROUND, with)

QOBS_HESSIAN_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_HESSIAN(isa) QOBS_HESSIAN_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_HESSIAN)
