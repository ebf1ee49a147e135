/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The grid search of some qparams by one thread: the errors of all their candidates, and the best step of each. */
#pragma once

#include "grid/qparam_search.h"

/* Searches n <= QOBS_SEARCH_LANES qparams from `first` on. `e` has the elements of the first one, afterwards those of
 * the last one. Writes best_step, range and errors, and sets a bit in `improved` for each step at which one of the
 * qparams improved. */
void qobs_search_qparams(struct qparam_search *search, struct qparam_workspace *workspace, struct elements *e,
                         size_t first, size_t n, uint64_t *improved);

/* Writes the ranges of the best steps of n qparams from `first` on. */
void qobs_store_ranges(struct qparam_search *search, size_t first, size_t n);

/* Writes candidates of n qparams from `first` on to workspace->shrunk. */
void qobs_shrink_qparams(const struct qparam_search *search, struct qparam_workspace *workspace, size_t first,
                         size_t n);

/* Writes best_step and errors of a qparam; `unit` multiplies both errors. */
void qobs_record_step(struct qparam_search *search, size_t qparam, int32_t step, double best, double before,
                      double unit);

/* For a qparam that is searched in blocks: writes the sums of all candidates over elements first to end to
 * workspace->total. Returns false, without sums, if the range is not finite. */
bool qobs_sum_block(struct qparam_search *search, struct qparam_workspace *workspace, struct elements *e, size_t qparam,
                    int64_t first, int64_t end);

/* Chooses the best step by sums over all elements, and writes what qobs_search_qparams writes. */
void qobs_choose_step(struct qparam_search *search, size_t qparam, double *total, uint64_t *improved);
