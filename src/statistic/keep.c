/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "statistic/keep.h"

#include "convention/quark.h"
#include "statistic/update.h"
#include "tensor.h"

/* Each of these finds the state to be the batch itself where that is `fresh`. */

static void last(qobs_observer *o, bool fresh)
{
    (void)o, (void)fresh;
}

static void extremes(qobs_observer *o, bool fresh)
{
    const struct kept *k = &o->kept;
    if (!fresh)
        qobs_update_running(o->layout.dtype, o->layout.entries, k->state.min, k->state.max, k->batch.min, k->batch.max);
}

/* The scale and zero point of the extremes so far are this batch's vote; where upstream raises it has none. */
static void ballot(qobs_observer *o, bool fresh)
{
    extremes(o, fresh);
    struct votes *votes = &o->kept.votes;
    const struct range_view ranges = qobs_view_ranges(o);
    const size_t next = votes->candidates;
    if (qobs_convention(&o->config, &ranges, qobs_vote_scale(votes, next), qobs_vote_zero_point(votes, next), NULL) ==
        QOBS_OK)
        qobs_votes_cast(votes, 1);
}

static void absmax(qobs_observer *o, bool fresh)
{
    const struct ranges *batch = fresh ? &o->kept.state : &o->kept.batch;
    qobs_update_absmax(o->layout.dtype, o->layout.entries, o->kept.state.min, o->kept.state.max, batch->min, batch->max,
                       fresh);
}

static void absmax_bfp(qobs_observer *o, bool fresh)
{
    const struct ranges *batch = fresh ? &o->kept.state : &o->kept.batch;
    qobs_quark_update_bfp(&o->config, o->layout.dtype, o->layout.entries, o->kept.state.min, o->kept.state.max, batch->min,
                          batch->max, fresh);
}

static void average_lerp(qobs_observer *o, bool fresh)
{
    const struct kept *k = &o->kept;
    if (!fresh)
        qobs_update_lerp(o->layout.dtype, o->layout.entries, k->state.min, k->state.max, k->batch.min, k->batch.max,
                         o->config.averaging_constant);
}

static void average_towards(qobs_observer *o, bool fresh)
{
    const struct kept *k = &o->kept;
    if (!fresh)
        qobs_update_towards(o->layout.dtype, o->layout.entries, k->state.min, k->state.max, k->batch.min, k->batch.max,
                            o->config.averaging_constant);
}

static const struct {
    enum keeps keeps;
    enum merging merging;
    void (*enter)(qobs_observer *o, bool fresh);
} statistics[] = {
    [STATISTIC_NONE] = {KEEPS_NOTHING, MERGE_LAST, last},
    [STATISTIC_MEMORYLESS] = {KEEPS_RANGE, MERGE_LAST, last},
    [STATISTIC_RUNNING] = {KEEPS_RANGE, MERGE_EXTREMES, extremes},
    [STATISTIC_AVERAGE_LERP] = {KEEPS_RANGE, MERGE_MEANS, average_lerp},
    [STATISTIC_AVERAGE_TOWARDS] = {KEEPS_RANGE, MERGE_MEANS, average_towards},
    [STATISTIC_ABSMAX] = {KEEPS_ABSMAX, MERGE_EXTREMES, absmax},
    [STATISTIC_ABSMAX_BFP] = {KEEPS_ABSMAX, MERGE_EXTREMES, absmax_bfp},
    [STATISTIC_BALLOT] = {KEEPS_RANGE, MERGE_EXTREMES, ballot},
};

/* In Quark's observers is_dynamic means the last batch only; in torch's it changes nothing. */
static bool dynamic(const qobs_config *config)
{
    return config->preset->family == FAMILY_QUARK && config->is_dynamic;
}

bool qobs_memoryless(const qobs_config *config)
{
    const enum statistic statistic = config->preset->statistic;
    return statistic == STATISTIC_MEMORYLESS || dynamic(config) ||
           (statistic == STATISTIC_AVERAGE_LERP && config->averaging_constant == 1);
}

bool qobs_begins_anew(const qobs_config *config)
{
    return config->preset->family == FAMILY_QUARK &&
           (config->preset->statistic != STATISTIC_ABSMAX_BFP || config->is_dynamic);
}

enum nonfinite_mode qobs_nonfinite_mode(const qobs_config *config)
{
    const bool as_zero = config->preset->statistic == STATISTIC_ABSMAX_BFP && config->nonfinite == NONFINITE_PROPAGATE;
    return as_zero ? NONFINITE_IGNORE : (enum nonfinite_mode)config->nonfinite;
}

enum keeps qobs_keeps(const qobs_config *config)
{
    return statistics[config->preset->statistic].keeps;
}

enum merging qobs_merging(const qobs_config *config)
{
    return dynamic(config) ? MERGE_LAST : statistics[config->preset->statistic].merging;
}

int qobs_keep_reserve(const qobs_observer *o, const struct layout *layout, struct kept *kept, qobs_error *error)
{
    int status = QOBS_OK;
    if (!kept->batch.min)
        status = qobs_allocate_ranges(&o->runtime, &kept->batch, layout->dtype, layout->entries, error);
    if (status == QOBS_OK && o->config.preset->statistic == STATISTIC_BALLOT)
        status = qobs_votes_reserve(&o->runtime, &kept->votes, layout->qparams, 1, error);
    return status;
}

/* Quark's observers of ranges have f32 buffers until the first tensor gives them its dtype: of f64 ranges they keep what f32
 * holds. */
static void pass_through_f32(qobs_observer *o)
{
    const size_t size = qobs_dtype_size(o->layout.dtype);
    for (size_t i = 0; i < 2 * o->layout.qparams; i++) {
        unsigned char *range = i % 2 ? o->kept.batch.max + i / 2 * size : o->kept.batch.min + i / 2 * size;
        qobs_put_element(range, o->layout.dtype, (double)(float)qobs_element(range, o->layout.dtype));
    }
}

void qobs_keep(qobs_observer *o, bool first)
{
    const bool fresh = first || qobs_memoryless(&o->config);
    if (o->config.preset->family == FAMILY_QUARK && qobs_keeps(&o->config) == KEEPS_RANGE && o->counts.batches == 0 &&
        o->layout.dtype == QOBS_F64)
        pass_through_f32(o);
    if (fresh) {
        const struct ranges old = o->kept.state;
        o->kept.state = o->kept.batch;
        o->kept.batch = old;
    }
    statistics[o->config.preset->statistic].enter(o, fresh);
}
