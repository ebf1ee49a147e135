/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What the searches of kept.h have found, of several observers. Errors that are summed over batches are added, where they
 * are of the same magnitudes. A choice that was made on a batch stays the observer's own, or is that of the first to have
 * one; that of a block keeps its exponent, as far as `scope` below the merged magnitude's goes. */
#ifndef QOBS_SEARCH_MERGE_H
#define QOBS_SEARCH_MERGE_H

#include "observer/observer.h"

/* Checks, and makes room in an observer without data, which becomes like `model`; undone with qobs_release_kept and
 * qobs_search_record_release. */
int qobs_merge_searched_reserve(qobs_observer *o, const qobs_observer *model, const qobs_observer *const *others,
                                size_t count, qobs_error *error);

/* Before and after the ranges are merged. */
void qobs_merge_searched_before(qobs_observer *o);
void qobs_merge_searched_after(qobs_observer *o, const qobs_observer *const *others, size_t count);

#endif
