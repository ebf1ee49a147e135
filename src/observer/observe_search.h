/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search as a step of taking a batch: between its minimum and maximum and the statistic they enter. */
#ifndef QOBS_SEARCH_OBSERVE_H
#define QOBS_SEARCH_OBSERVE_H

#include "observer/observer.h"

/* The batch's ranges become those with the least error; the caller releases *record, also after an error. whole: the batch's
 * range of the whole tensor, where that is kept apart (the 2025 forms); it comes first, and the global scale it will give
 * once it has been kept is the one the qparams are searched under. NULL: that of the range kept so far, if there is one. */
int qobs_search_observed(const qobs_observer *o, const qobs_plan *plan, const qobs_tensor *value, struct global_range *whole,
                         struct ranges *batch, struct search_record *record, qobs_error *error);

/* Replaces the range of a whole tensor by the best one, if each candidate has the global scale of its own range. */
int qobs_search_global(const qobs_observer *o, const qobs_plan *plan, const unsigned char *data, void *min, void *max,
                       qobs_error *error);

#endif
