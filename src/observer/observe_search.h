/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The grid search (SEARCH_BATCH in range/range_rule.h) as a step of observing: it runs between the reduction of a batch
 * and its accumulation. */
#ifndef QOBS_OBSERVE_SEARCH_H
#define QOBS_OBSERVE_SEARCH_H

#include "observer/observer.h"

/* Replaces the ranges of a batch by the best ones. The caller releases *record, also after an error. `whole` is the
 * batch's range of the tensor, if the observer has one (the 2025 forms), else NULL. It is searched first; the qparams
 * are then searched under the global scale that the accumulated range of the tensor will have. Without `whole` that is
 * the global scale so far, if there is one. */
int qobs_search_observed(const qobs_observer *o, const qobs_plan *plan, const qobs_tensor *value, struct whole *whole,
                         struct ranges *batch, struct search_record *record, qobs_error *error);

/* Replaces the range of a tensor by the best one, if each candidate has the global scale of its own range. */
int qobs_search_global(const qobs_observer *o, const qobs_plan *plan, const unsigned char *data, void *min, void *max,
                       qobs_error *error);

#endif
