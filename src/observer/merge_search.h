/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Merging what the searches around accumulated ranges found. Errors that are summed over batches are added; their amax
 * must be the same. A choice made on one batch stays the observer's own, or is that of the first observer that has one.
 * The choice for a block keeps its exponent, as far as the scope below the merged magnitude reaches. */
#pragma once

#include "observer/observer.h"

/* Checks, and allocates what `state` lacks: the observer's own, or the new one it gets from `model`. */
int qobs_merge_search_prepare(const qobs_observer *observer, struct state *state, const qobs_observer *model,
                              const qobs_observer *const *others, size_t count, qobs_error *error);

/* Before and after the ranges are merged. */
void qobs_merge_search_before(qobs_observer *observer);
void qobs_merge_search_after(qobs_observer *observer, const qobs_observer *const *others, size_t count);
