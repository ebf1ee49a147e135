/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The grid search of qparams with the same amax in upstream's own arithmetic, by one thread. */
#pragma once

#include "grid/search_qparams.h"

/* Qparams that have to share an amax before a table is worth it, if each has that many elements. */
size_t qobs_enough_for_table(const struct qparam_search *search, size_t elements);

/* Writes what qobs_search_qparams writes, but for ranges, for n qparams of the same amax in any order. by_table: enough
 * share it. */
void qobs_search_same_amax(struct qparam_search *search, struct qparam_workspace *workspace, const uint32_t *qparam,
                           size_t n, bool by_table, uint64_t *improved);
