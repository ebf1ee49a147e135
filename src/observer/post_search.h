/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Searches of the state (SEARCH_STATE in range/range_rule.h) as a step of observing: they run after a batch has been
 * accumulated, and their errors are those of that batch. */
#pragma once

#include "observer/observer.h"
#include "qobs/plan.h"

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

/* The state as the members of struct range_ops take it. Those that return a result only read it. */
struct search_state qobs_search_state(const qobs_observer *observer);
