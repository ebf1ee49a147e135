/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* llm-compressor's mse observers (_grid_search_mse and _grid_search): every range shrinks in steps, and the step with
 * the smallest error wins. The error of a qparam is sum weight * |q - x|^norm over its elements. q is x after
 * fake-quantize with the scale and zero point of the step's range, in float. There are two differences to
 * fake-quantize: x * (1 / scale) stands for x / scale, and q is not rounded to the dtype of x. Between candidates whose
 * errors differ by less than about 2e-7, the choice may therefore differ from upstream. */
#ifndef QOBS_GRID_SEARCH_H
#define QOBS_GRID_SEARCH_H

#include "range/range_rule.h"

struct grid_search {
    const struct runtime *runtime; /* its executor runs the search */
    const struct qobs_kernels *kernels;
    const struct grid_params *params;
    const struct formula *formula;
    enum nonfinite_mode nonfinite;
    const qobs_plan *plan;
    const unsigned char *data;
    const float *column_weight;   /* one for each index of the last dimension, normalised; NULL: all 1 */
    const float *global_scale;    /* NULL: there is none */
    bool each_global_scale;       /* every candidate has the global scale of its own range */
    bool find_ranges;             /* the search finds the ranges first; min and max are output only */
    void *min, *max;              /* in the plan's dtype: the range of each qparam, in; its best range, out */
    struct search_record *record; /* output, with arrays that may be NULL; or NULL */
};

/* Writes the range of the best step of every qparam, or the expanded range if no step improved on the largest finite
 * float. F64 is searched as float. Elements that are not finite count as 0 with NONFINITE_IGNORE; otherwise their
 * qparams never improve. With find_ranges and NONFINITE_REFUSE such elements make the search fail.
 * QOBS_ERROR_UNSUPPORTED: the norm is not 1, 2 or 3 and this build is without SLEEF. */
int qobs_grid_search(const struct grid_search *search, qobs_error *error);

#endif
