/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Sums of errors of the candidates of one qparam. They go to workspace->total, of qparam i of the batch whose
 * candidates are in workspace->shrunk. */
#pragma once

#include "grid/qparam_search.h"

/* The candidates of qparam i. */
static inline struct search_candidates candidates_of(const struct qparam_workspace *w, size_t i)
{
    return (struct search_candidates){w->shrunk.scale + i, w->shrunk.inverse + i, w->shrunk.offset + i,
                                      QOBS_SEARCH_LANES};
}

/* Makes the error of candidates of qparam i that are not finite NaN; errors are `step` floats apart. */
void qobs_drop_nonfinite(const struct qparam_search *s, const struct qparam_workspace *w, size_t i, float *sum,
                         size_t step);

/* Loads a block in upstream's arithmetic, from element `first` on, unless it is all of the qparam and there already;
 * returns its size. */
size_t qobs_load_block(const struct qparam_search *s, struct qparam_workspace *w, const struct elements *e,
                       int64_t first, bool there);

/* Sums over elements first to end. */
void qobs_sum_blocks(const struct qparam_search *s, struct qparam_workspace *w, size_t i, const struct elements *e,
                     int64_t first, int64_t end);

/* Sums of n candidates from `from` on in upstream's arithmetic, after qobs_load_block. */
void qobs_sum_candidates(const struct qparam_search *s, struct qparam_workspace *w, size_t i, const struct elements *e,
                         size_t from, size_t n);
