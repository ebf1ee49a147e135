/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search that minimises e^T H e, plain C for every instruction set; included by src/ISA/hessian.c with its ENTRY.
 * Its flags decide how wide the compiler makes the loops.
 *
 * Accumulators: the caller's doubles, one an entry; each operation is rounded, none is fused.
 * Overflow: none below 1e300; the caller's matrices are finite.
 * Tails: columns are a multiple of 8, padded by the caller with zeros.
 * In flight: HESSIAN_STEPS rows of H, so that a sum is loaded and stored once for that many of them. Four events are
 *   applied together: what the first three add to u at the elements of the later ones is added on the side, in the same
 *   order as in u itself.
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h). */
#include "kernels/kernel_gram.h"
#include "number/grid.h"
#include "templates/inline.h"

enum { HESSIAN_STEPS = 4 };

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

/* Two rows of x share the loads of four rows of H. */
ALWAYS_INLINE void add_rows_4_twice(double *restrict u, double *restrict v, const double *restrict h0,
                                    const double *restrict h1, const double *restrict h2, const double *restrict h3,
                                    const double d[4], const double e[4], size_t columns)
{
    const double d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3], e0 = e[0], e1 = e[1], e2 = e[2], e3 = e[3];
    for (size_t j = 0; j < columns; j++) {
        double s = u[j], t = v[j];
        s += d0 * h0[j];
        t += e0 * h0[j];
        s += d1 * h1[j];
        t += e1 * h1[j];
        s += d2 * h2[j];
        t += e2 * h2[j];
        s += d3 * h3[j];
        t += e3 * h3[j];
        u[j] = s;
        v[j] = t;
    }
}

QOBS_HESSIAN_PRODUCT(ENTRY(qobs_hessian_product))
{
    size_t i = 0;
    for (; i + HESSIAN_STEPS <= inner; i += HESSIAN_STEPS) {
        const double *const h0 = h + i * h_stride, *const h1 = h0 + h_stride, *const h2 = h1 + h_stride,
                            *const h3 = h2 + h_stride;
        size_t r = 0;
        for (; r + 2 <= rows; r += 2)
            add_rows_4_twice(sum + r * sum_stride, sum + (r + 1) * sum_stride, h0, h1, h2, h3, x + r * x_stride + i,
                             x + (r + 1) * x_stride + i, columns);
        if (r < rows)
            add_rows_4(sum + r * sum_stride, h0, h1, h2, h3, x + r * x_stride + i, columns);
    }
    for (; i < inner; i++)
        for (size_t r = 0; r < rows; r++)
            add_row(sum + r * sum_stride, h + i * h_stride, x[r * x_stride + i], columns);
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
    if (columns == 16)
        hessian_steps(h, h_stride, 16, g, events, count, u, b, c);
    else
        hessian_steps(h, h_stride, columns, g, events, count, u, b, c);
}
