/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Searches that come when a batch's ranges have entered the statistic: scales around those the ranges give, errors on that
 * batch (Quark, Model-Optimizer). Nothing of the batch is kept but the choice or the errors. */
#ifndef QOBS_SEARCH_KEPT_H
#define QOBS_SEARCH_KEPT_H

#include "observer/observer.h"

/* Room for a search, one for each batch. */
struct search_workspace {
    double *doubles;
    size_t size; /* in bytes */
};

/* Memory for the search of a batch of that plan, whose ranges are in kept->batch, so that qobs_search_state cannot fail; the
 * caller releases *record and the room, also after an error. Refuses what the search has no answer for: a second batch, a
 * magnitude of another shape than was given, negative elements in unsigned numbers. */
int qobs_search_state_reserve(const qobs_observer *o, const qobs_plan *plan, const struct layout *layout, bool first,
                             struct state *state, struct search_record *record, struct search_workspace *workspace, qobs_error *error);
void qobs_search_workspace_release(const struct runtime *runtime, struct search_workspace *workspace);

/* Searches the batch, the observer's counts being those before it. What was found goes to o->searched. */
void qobs_search_state(qobs_observer *o, const qobs_plan *plan, const unsigned char *data, const struct search_workspace *workspace);

/* Scales of blocks: what their magnitudes give, lowered by the steps found. NO_RESULT where an error was NaN. */
int qobs_lower_scales(const qobs_observer *o, qobs_dtype dtype, void *scale, qobs_error *error);

/* What those magnitudes give, in f32 and not yet eps where it is 0. */
void qobs_read_init_scale(const qobs_observer *o, float *scale);

/* MseCalibrator's answer: the multiple of every magnitude with the least error. */
void qobs_read_multiples(const qobs_observer *o, float *amax);

/* What the errors say: into o->searched. */
void qobs_choose_multiples(const qobs_observer *o, struct search_record *record);

#endif
