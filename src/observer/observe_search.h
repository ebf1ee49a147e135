/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The grid search as a step of accepting a batch: after its ranges are measured and before they are accumulated. */
#pragma once

#include "observer/observer.h"
#include "qobs/plan.h"

/* Replaces the batch's ranges by those with the smallest error. The caller releases *record, also after an error.
 * `global`: the batch's tensor-wide range if the observer accumulates one. It is searched first, and the qparams are
 * searched under the global scale it will give. NULL: under that of the range accumulated so far, if there is one. */
int qobs_search_batch(const qobs_observer *observer, const qobs_plan *plan, const qobs_tensor *value,
                      struct global_range *global, struct ranges *batch, struct search_record *record,
                      qobs_error *error);

/* Replaces the range of a tensor by the one with the smallest error, if each candidate has the global scale of its own
 * range. */
int qobs_search_global(const qobs_observer *observer, const qobs_plan *plan, const unsigned char *data, void *min,
                       void *max, qobs_error *error);
