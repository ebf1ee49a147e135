/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search as a step of taking a batch: between its minimum and maximum and the statistic they enter. */
#ifndef QOBS_SEARCH_OBSERVE_H
#define QOBS_SEARCH_OBSERVE_H

#include "observer.h"

/* The batch's ranges in kept->batch become those with the least error; the caller releases *record, also after an error. Where the whole
 * tensor's range is kept apart (2025-10) it comes first, and the global scale it will give with this batch is the one the
 * qparams are searched under. `first`: the batch replaces what was kept. */
int qobs_search_observed(const qobs_observer *o, const qobs_plan *plan, const struct layout *layout, const qobs_tensor *value,
                         bool first, struct kept *kept, struct search_record *record, qobs_error *error);

#endif
