/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The arguments of a grid search, which its parts share. */
#ifndef QOBS_GRID_ARGUMENTS_H
#define QOBS_GRID_ARGUMENTS_H

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

#endif
