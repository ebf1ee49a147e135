/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "measure/accumulators.h"

#include <string.h>

#include "config/dtypes.h"
#include "measure/accumulate.h"
#include "base/tensor.h"
#include "number/block_float.h"
#include "number/convert.h"

static void last(const struct entering *e)
{
    (void)e;
}

static void extremes(const struct entering *e)
{
    if (!e->fresh)
        qobs_update_running(e->dtype, e->n, e->min, e->max, e->lo, e->hi);
}

static void absmax(const struct entering *e)
{
    qobs_update_absmax(e->dtype, e->n, e->min, e->max, e->lo, e->hi, e->fresh);
}

static void first_absmax(const struct entering *e)
{
    if (e->fresh)
        absmax(e);
}

static void absmax_bfp(const struct entering *e)
{
    const qobs_dtype scale_dtype = qobs_quark_scale_type(e->config);
    qobs_update_absmax_bfp(e->dtype, scale_dtype ? scale_dtype : e->dtype, e->n, e->min, e->max, e->lo, e->hi, e->fresh);
}

static void average_lerp(const struct entering *e)
{
    if (!e->fresh)
        qobs_update_lerp(e->dtype, e->n, e->min, e->max, e->lo, e->hi, e->config->averaging_constant);
}

static void average_towards(const struct entering *e)
{
    if (!e->fresh)
        qobs_update_moving_average(e->dtype, e->n, e->min, e->max, e->lo, e->hi, e->config->averaging_constant);
}

static const struct {
    enum keeps keeps;
    enum merging merging;
    void (*enter)(const struct entering *entering);
} statistics[] = {
    [STATISTIC_NONE] = {KEEPS_NOTHING, MERGE_LAST, last},
    [STATISTIC_MEMORYLESS] = {KEEPS_RANGE, MERGE_LAST, last},
    [STATISTIC_RUNNING] = {KEEPS_RANGE, MERGE_EXTREMES, extremes},
    [STATISTIC_AVERAGE_LERP] = {KEEPS_RANGE, MERGE_MEANS, average_lerp},
    [STATISTIC_AVERAGE_TOWARDS] = {KEEPS_RANGE, MERGE_MEANS, average_towards},
    [STATISTIC_ABSMAX] = {KEEPS_ABSMAX, MERGE_EXTREMES, absmax},
    [STATISTIC_ABSMAX_BFP] = {KEEPS_ABSMAX, MERGE_EXTREMES, absmax_bfp},
    [STATISTIC_BALLOT] = {KEEPS_RANGE, MERGE_EXTREMES, extremes},
    [STATISTIC_BALLOT_LEAST] = {KEEPS_RANGE, MERGE_EXTREMES, extremes},
    [STATISTIC_ABSMAX_STEPS] = {KEEPS_ABSMAX, MERGE_EXTREMES, absmax},
    [STATISTIC_MULTIPLES] = {KEEPS_ABSMAX, MERGE_LAST, first_absmax},
    [STATISTIC_LEAST_SCALE] = {KEEPS_ABSMAX, MERGE_LAST, absmax},
    [STATISTIC_HISTOGRAM] = {KEEPS_RANGE, MERGE_EXTREMES, extremes},
    [STATISTIC_HISTOGRAM_QUARK] = {KEEPS_BINS, MERGE_EXTREMES, extremes},
    [STATISTIC_PERCENTILE] = {KEEPS_BINS, MERGE_EXTREMES, extremes},
    [STATISTIC_SQUARED_ERROR] = {KEEPS_BINS, MERGE_EXTREMES, extremes},
    [STATISTIC_HISTOGRAM_MODELOPT] = {KEEPS_BINS, MERGE_EXTREMES, extremes},
};

/* The preset's; llm-compressor averaged as torch does before October 2025. */
static enum statistic statistic_of(const qobs_config *config)
{
    const enum statistic statistic = config->preset->statistic;
    const bool old = config->preset->family == FAMILY_LLMC && config->version == VERSION_2025_09;
    return old && statistic == STATISTIC_AVERAGE_LERP ? STATISTIC_AVERAGE_TOWARDS : statistic;
}

/* In Quark's observers is_dynamic means the last batch only; in torch's it changes nothing. */
static bool dynamic(const qobs_config *config)
{
    return config->preset->family == FAMILY_QUARK && config->is_dynamic;
}

bool qobs_memoryless(const qobs_config *config)
{
    return config->preset->statistic == STATISTIC_MEMORYLESS || dynamic(config) ||
           (config->preset->statistic == STATISTIC_AVERAGE_LERP && config->averaging_constant == 1);
}

bool qobs_begins_anew(const qobs_config *config)
{
    if (config->preset->family == FAMILY_LLMC)
        return config->version == VERSION_2025_09 && qobs_memoryless(config);
    return config->preset->family == FAMILY_QUARK &&
           (config->preset->statistic != STATISTIC_ABSMAX_BFP || config->is_dynamic);
}

enum nonfinite_mode qobs_nonfinite_mode(const qobs_config *config)
{
    const bool as_zero = config->preset->statistic == STATISTIC_ABSMAX_BFP && config->nonfinite == NONFINITE_PROPAGATE;
    return as_zero ? NONFINITE_IGNORE : (enum nonfinite_mode)config->nonfinite;
}

bool qobs_votes(const qobs_config *config)
{
    const enum statistic statistic = config->preset->statistic;
    return statistic == STATISTIC_BALLOT || statistic == STATISTIC_BALLOT_LEAST;
}

enum keeps qobs_keeps(const qobs_config *config)
{
    return statistics[statistic_of(config)].keeps;
}

bool qobs_takes_absmax(const qobs_config *config)
{
    const enum statistic statistic = config->preset->statistic;
    return statistic == STATISTIC_ABSMAX || statistic == STATISTIC_ABSMAX_STEPS || statistic == STATISTIC_LEAST_SCALE ||
           (statistic == STATISTIC_MULTIPLES && !config->is_unsigned); /* else negative elements are refused */
}

enum merging qobs_merging(const qobs_config *config)
{
    return dynamic(config) ? MERGE_LAST : statistics[statistic_of(config)].merging;
}

int qobs_keep_reserve(const qobs_observer *o, const struct layout *layout, struct kept *kept, qobs_error *error)
{
    int status = QOBS_OK;
    if (!kept->batch.min)
        status = qobs_allocate_ranges(&o->runtime, &kept->batch, layout->dtype, layout->qparams, error);
    if (status == QOBS_OK && qobs_votes(&o->config))
        status = qobs_mode_reserve(&o->runtime, &kept->mode_count, layout->qparams, 1, error);
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

/* The scale and zero point of the ranges so far are this batch's vote; where upstream raises it has none. */
static void vote(qobs_observer *o)
{
    struct mode_count *mode_count = &o->kept.mode_count;
    const struct range_view ranges = qobs_view_ranges(o);
    const size_t next = mode_count->candidates;
    if (qobs_formula_qparams(&o->stages.formula, &ranges, qobs_mode_scale(mode_count, next), qobs_mode_zero_point(mode_count, next), NULL) ==
        QOBS_OK)
        qobs_mode_add(mode_count, 1);
}

/* The mse observer of September 2025 looks for running values under another name than it keeps them by where there is one range or
 * channel, and for the first group: there a batch replaces what was, which is what averaging leaves of equal numbers. */
static void forget_unfound(const qobs_observer *o)
{
    const struct kept *k = &o->kept;
    const size_t size = qobs_dtype_size(o->layout.dtype);
    const size_t step = o->layout.keying == KEYING_GROUPS ? (size_t)o->layout.range.extent[o->layout.range.ndim - 1] : 1;
    if (o->config.version != VERSION_2025_09 || !qobs_searches(&o->config) || o->layout.keying == KEYING_BLOCKS)
        return;
    for (size_t i = 0; i < o->layout.qparams; i += step) {
        memcpy(k->state.min + i * size, k->batch.min + i * size, size);
        memcpy(k->state.max + i * size, k->batch.max + i * size, size);
    }
}

void qobs_keep(qobs_observer *o, bool first)
{
    const bool fresh = first || qobs_memoryless(&o->config);
    struct kept *k = &o->kept;
    if (o->config.preset->family == FAMILY_QUARK && qobs_keeps(&o->config) == KEEPS_RANGE && o->counts.batches == 0 &&
        o->layout.dtype == QOBS_F64)
        pass_through_f32(o);
    if (fresh) {
        const struct ranges old = k->state;
        k->state = k->batch;
        k->batch = old;
    } else {
        forget_unfound(o);
    }
    const struct ranges *batch = fresh ? &k->state : &k->batch;
    const struct entering entering = {&o->config,   o->layout.dtype, o->layout.qparams, k->state.min,
                                      k->state.max, batch->min,      batch->max,        fresh};
    statistics[statistic_of(&o->config)].enter(&entering);
    if (o->config.preset->statistic == STATISTIC_BALLOT)
        vote(o);
}

void qobs_keep_whole(const qobs_config *config, struct whole *whole, const struct whole *batch)
{
    const bool fresh = whole->dtype == 0 || qobs_memoryless(config);
    if (fresh)
        *whole = *batch;
    batch = fresh ? whole : batch;
    const struct entering entering = {config, whole->dtype, 1, whole->min, whole->max, batch->min, batch->max, fresh};
    statistics[statistic_of(config)].enter(&entering);
}
