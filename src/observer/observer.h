/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* An observer: its stages, what it has accumulated, and what the caller has set. */
#pragma once

#include "config/stages.h"
#include "measure/gram.h"
#include "measure/importance.h"
#include "observer/state.h"
#include "qobs/plan.h"

struct qobs_observer {
    qobs_config config;
    struct stages stages;
    struct runtime runtime;
    const struct kernel_table *kernels;
    qobs_counts counts;

    /* Before the first batch the layout is that of upstream's answer without data; the rest is empty. */
    struct state state;
    struct global_range global_range;
    struct importance importance; /* of the columns of the weight to come */
    struct gram gram;             /* of the same activations, if there is need */
    struct search_reference reference;
    bool fused; /* the global scale is that of this amax instead of the observer's own */
    double fused_amax;
};

/* An observer without data, in memory that is there. */
void qobs_observer_init(qobs_observer *observer, const qobs_config *config, const struct runtime *runtime);

/* Dtype and shape of the ranges of such a batch. */
struct layout qobs_layout_of(const struct stages *stages, const qobs_plan *plan);

/* The accumulated ranges as the formula reads them, without a global scale. */
struct range_view qobs_view_ranges(const qobs_observer *observer);

/* The global range accumulates that of a batch. */
void qobs_accumulate_global(const struct accumulator *accumulator, struct global_range *global,
                            const struct global_range *batch);

/* All parts of an observer (state_parts.h): their memory, and a batch that has been accumulated. */
void qobs_parts_release(qobs_observer *observer);
void qobs_parts_observe(qobs_observer *observer, const qobs_plan *plan, bool forward);
