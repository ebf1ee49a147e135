/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "statistic/keep.h"

#include "statistic/update.h"

/* Each of these finds the state to be the batch itself where that is `fresh`. */

static void last(qobs_observer *o, bool fresh)
{
    (void)o, (void)fresh;
}

static void extremes(qobs_observer *o, bool fresh)
{
    if (!fresh)
        qobs_update_running(o->layout.dtype, o->layout.entries, o->state.min, o->state.max, o->batch.min, o->batch.max);
}

static void average_lerp(qobs_observer *o, bool fresh)
{
    if (!fresh)
        qobs_update_lerp(o->layout.dtype, o->layout.entries, o->state.min, o->state.max, o->batch.min, o->batch.max,
                         o->config.averaging_constant);
}

static void average_towards(qobs_observer *o, bool fresh)
{
    if (!fresh)
        qobs_update_towards(o->layout.dtype, o->layout.entries, o->state.min, o->state.max, o->batch.min, o->batch.max,
                            o->config.averaging_constant);
}

static const struct {
    enum merging merging;
    void (*enter)(qobs_observer *o, bool fresh);
} statistics[] = {
    [STATISTIC_MEMORYLESS] = {MERGE_LAST, last},
    [STATISTIC_RUNNING] = {MERGE_EXTREMES, extremes},
    [STATISTIC_AVERAGE_LERP] = {MERGE_MEANS, average_lerp},
    [STATISTIC_AVERAGE_TOWARDS] = {MERGE_MEANS, average_towards},
};

/* Does a batch replace what was before? */
static bool memoryless(const qobs_config *config)
{
    const enum statistic statistic = config->preset->statistic;
    return statistic == STATISTIC_MEMORYLESS || (statistic == STATISTIC_AVERAGE_LERP && config->averaging_constant == 1);
}

enum merging qobs_merging(const qobs_config *config)
{
    return statistics[config->preset->statistic].merging;
}

void qobs_keep(qobs_observer *o, bool first)
{
    const bool fresh = first || memoryless(&o->config);
    if (fresh) {
        const struct ranges old = o->state;
        o->state = o->batch;
        o->batch = old;
    }
    statistics[o->config.preset->statistic].enter(o, fresh);
}
