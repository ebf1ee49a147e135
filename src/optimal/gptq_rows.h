/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* GPTQ of a block of columns. Rows are independent; 16 of them become the lanes of the kernel. */
#pragma once

#include "base/tensor.h"
#include "kernels/kernels.h"
#include "number/quantizer.h"

struct gptq_rows {
    const struct runtime *runtime;
    const struct kernel_table *kernels;
    const struct quantizer *quantizer;
    bool positive_zero;                  /* a quotient of -0 becomes +0 */
    int64_t rows, columns;               /* columns: at most GPTQ_MOST_COLUMNS */
    const float *factor;                 /* rows factor_stride floats apart */
    int64_t factor_stride;
    const struct view *scale;            /* (rows, columns), F32, BF16 or F16 */
    const struct view *zero_point;       /* the same of any dtype; NULL: there is none */
    float *value, *quantized, *error, *loss; /* [rows][columns] */
};

enum { GPTQ_MOST_COLUMNS = 1024 };

/* Results have the same bits for every number of threads. */
int qobs_gptq_rows(const struct gptq_rows *g, qobs_error *error);
