/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search for optimal scales as a step of accepting a batch, and its result as a part of the state. */
#pragma once

#include "observer/observer.h"
#include "observer/saved_state.h"

/* Searches a batch whose ranges are `batch`. The caller releases *result, also after an error. */
int qobs_observe_optimal(const qobs_observer *observer, const qobs_plan *plan, const struct layout *layout,
                         const struct ranges *batch, const unsigned char *data, struct optimal_result *result,
                         qobs_error *error);

static inline bool qobs_is_optimal(const qobs_observer *observer)
{
    return observer->stages.range.ops->stage == SEARCH_OPTIMAL;
}

/* True if scales have been searched under another global scale than the present one: the weight must be observed
 * again. */
bool qobs_optimal_is_stale(const qobs_observer *observer);

/* Saves and loads the result. */
int qobs_code_optimal(struct codec *codec, qobs_observer *observer, qobs_error *error);
