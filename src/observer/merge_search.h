/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Merging the results of searches of the state. Errors that are summed over batches are added; all observers must have
 * the same amax. Another result stays the observer's own, or is that of the first observer with one. */
#ifndef QOBS_MERGE_SEARCH_H
#define QOBS_MERGE_SEARCH_H

#include "observer/observer.h"

/* Checks the observers and allocates a record and sums for an observer without data, which becomes like `model`. To
 * undo it, call qobs_release_kept and qobs_search_record_release. */
int qobs_merge_searched_reserve(qobs_observer *o, const qobs_observer *model, const qobs_observer *const *others,
                                size_t count, qobs_error *error);

/* Called before and after the ranges are merged. */
void qobs_merge_searched_before(qobs_observer *o);
void qobs_merge_searched_after(qobs_observer *o, const qobs_observer *const *others, size_t count);

#endif
