/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Searches and weights of errors as steps of observing. */
#pragma once

#include "observer/observer.h"
#include "qobs/plan.h"

/* The grid search as a step of accepting a batch: after its ranges are measured and before they are accumulated. */

/* Replaces the batch's ranges by those with the smallest error. The caller releases *record, also after an error.
 * `global`: the batch's tensor-wide range if the observer accumulates one. It is searched first, and the qparams are
 * searched under the global scale it will give. NULL: under that of the range accumulated so far, if there is one. */
int qobs_search_batch(const qobs_observer *observer, const qobs_plan *plan, const qobs_tensor *value,
                      struct global_range *global, struct ranges *batch, struct search_record *record,
                      qobs_error *error);

/* Replaces the range of the plan's tensor by the one with the smallest error, if each candidate has the global scale of
 * its own range. */
int qobs_search_global(const qobs_observer *observer, const qobs_plan *plan, struct global_range *global,
                       qobs_error *error);

/* Searches of the state (struct state_range) as a step of observing: they run after a batch has
 * been accumulated, and their errors are those of that batch. */

struct search_workspace {
    double *doubles;
    size_t size; /* bytes */
};

/* Checks a batch of that plan, whose ranges are in state->batch, and allocates what its search needs, so that
 * qobs_search_accumulated cannot fail. The caller releases *record and *workspace, also after an error. */
int qobs_prepare_search(const qobs_observer *observer, const qobs_plan *plan, const struct layout *layout, bool first,
                        struct state *state, struct search_record *record, struct search_workspace *workspace,
                        qobs_error *error);
void qobs_search_workspace_release(const struct runtime *runtime, struct search_workspace *workspace);

/* Searches the batch; the result is the state's record. The observer's counts are those before the batch. */
void qobs_search_accumulated(qobs_observer *observer, const qobs_plan *plan, const unsigned char *data,
                             const struct search_workspace *workspace);

/* The state as the members of struct state_range take it. Those that return a result only read it. */
struct search_state qobs_search_state(const qobs_observer *observer);

/* The Gram of activations as a part of an observer: of the groups, or of the blocks that hessian_block_size says. */

/* True if the observer needs the Gram of activations besides their mean squares. */
bool qobs_needs_gram(const struct stages *stages);

/* A gram for activations of that many columns, without sums. */
struct gram qobs_gram_for(const struct stages *stages, int64_t columns);

/* Adds activations to the importance, and to the Gram if there is need. After a failure nothing has changed. */
int qobs_observe_activations(qobs_observer *o, const struct view *v, qobs_error *error);

/* The search for optimal scales as a step of accepting a batch, and its result as a part of the state. */

/* Searches a batch whose ranges are `batch`. The caller releases *result, also after an error. */
int qobs_observe_optimal(const qobs_observer *observer, const qobs_plan *plan, const struct layout *layout,
                         const struct ranges *batch, const unsigned char *data, struct optimal_result *result,
                         qobs_error *error);

static inline bool qobs_is_optimal(const qobs_observer *observer) { return observer->stages.range.ops->optimal; }

/* True if scales have been searched under another global scale than the present one: the weight must be observed
 * again. */
bool qobs_optimal_is_stale(const qobs_observer *observer);
