/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Codes with a smaller error d H d^T than those that are nearest, d = w - (q - zero_point) * scale: coordinate descent
 * from the nearest codes. Scales and zero points stay. Columns go in the order of falling H_jj, ties in their own, in
 * blocks of QOBS_ROUND_COLUMNS. Rows are independent. Columns without H_jj keep their codes. */
#pragma once

#include "plan/row_list.h"
#include "number/convert.h"
#include "optimal/optimal.h"

struct code_descent {
    const struct runtime *runtime;
    const struct kernel_table *kernels;
    struct row_list rows;
    struct gram gram;            /* the blocks of H; its sums are not used */
    const struct view *hessian;  /* F32 or F64, the shape of the gram's sums */
    bool symmetric;              /* h[j][k] == h[k][j] for all; else their mean counts */
    double tokens;               /* divides H */
    double dampening;            /* that share of the mean of H_jj of a block is added to each H_jj */
    double shrinkage;            /* H_jk of two columns loses that share */
    int64_t group, groups;       /* columns of a group; groups of a row */
    const float *scale;          /* [rows][groups] */
    const float *zero_point;     /* the same */
    const float *number_of_code; /* [256]; finite */
    struct code_grid grid;
    int passes;
    unsigned char *codes;             /* [rows][columns]: the nearest; receives the result */
    const struct qobs_format *format; /* of the codes; NULL: integers */
};

/* Sums of d H d^T of the nearest codes and of the result, H not shrunk; of d * d of the result, and of w * w. */
struct code_descent_sums {
    double error_before, error, squared_error, energy;
};

struct code_descent_result {
    struct code_descent_sums sums;
    int64_t changed; /* codes that differ from the nearest */
    int passes;      /* of the block of columns that took most */
};

/* Entries [column, column + n) of a row of a block of H. */
static inline void qobs_hessian_entries(const struct view *h, int64_t block, int64_t row, int64_t column, int64_t n,
                                        double *out)
{
    const int64_t step = h->strides[2];
    const unsigned char *at = h->data + block * h->strides[0] + row * h->strides[1] + column * step;
    if (step == sizeof(double) && h->dtype == QOBS_F64)
        memcpy(out, at, (size_t)n * sizeof *out);
    else if (step == sizeof(float) && h->dtype == QOBS_F32)
        for (int64_t i = 0; i < n; i++)
            out[i] = (double)((const element_f32 *)(const void *)at)[i];
    else
        for (int64_t i = 0; i < n; i++, at += step)
            out[i] = qobs_element(at, h->dtype);
}

/* The result has the same bits on every instruction set and for every number of threads; codes do not depend on which
 * rows come together. */
int qobs_descend_codes(const struct code_descent *c, struct code_descent_result *result, qobs_error *error);
