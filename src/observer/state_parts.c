/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The parts of a saved state, each in one function for both directions. Numbers are checked before they are used,
 * because a state may come from anywhere. */
#include "observer/searches.h"
#include "observer/saved_state.h"

#include <math.h>

#include "base/error.h"
#include "base/tensor.h"

int qobs_damaged(qobs_error *error, const char *what)
{
    return qobs_invalid(error, "buffer: is no saved state: %s", what);
}

static bool is_observable(qobs_dtype dtype)
{
    enum kernel_dtype unused;
    return qobs_kernel_dtype_of(dtype, &unused);
}

/* ---- Counts, global range, ranges -------------------------------------------------------------------------------- */

static int code_counts(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    qobs_counts *c = &o->counts;
    uint64_t *const counts[] = {&c->batches, &c->elements, &c->nan, &c->inf, &c->tokens, &c->nonzero_tokens};
    (void)error;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        qobs_code(codec, counts[i], 8);
    if (codec->format >= 3)
        qobs_code(codec, &c->ignored, 8);
    return QOBS_OK;
}

static int code_global_range(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct global_range *r = &o->global_range;
    r->dtype = (qobs_dtype)qobs_code_u32(codec, (uint32_t)r->dtype);
    if (r->dtype == 0)
        return QOBS_OK;
    if (!is_observable(r->dtype) || !o->stages.traits.has_global_range)
        return qobs_damaged(error, "its global range is impossible");
    qobs_code_elements(codec, r->min, 1, qobs_dtype_size(r->dtype));
    qobs_code_elements(codec, r->max, 1, qobs_dtype_size(r->dtype));
    return codec->ends_early ? qobs_damaged(error, "it ends early") : QOBS_OK;
}

static int code_ranges(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct state *s = &o->state;
    const bool saved = !qobs_state_is_empty(s);
    const qobs_dtype dtype = (qobs_dtype)qobs_code_u32(codec, saved ? (uint32_t)s->layout.dtype : 0);
    if (codec->loading && (dtype != 0) != (o->counts.batches > 0 && o->stages.reduction.ops->measure))
        return qobs_damaged(error, "its number of batches contradicts its ranges");
    if (dtype == 0)
        return QOBS_OK;
    struct layout layout = s->layout;
    const size_t qparams = qobs_code_shape(codec, &layout.range), scales = qobs_code_shape(codec, &layout.scale);
    const uint32_t keying = qobs_code_u32(codec, (uint32_t)layout.keying);
    const size_t element = qobs_dtype_size(dtype);
    if (codec->loading) {
        layout.dtype = dtype;
        layout.qparams = qparams;
        layout.keying = (enum keying)keying;
        if (!is_observable(dtype) || qparams == 0 || scales != qparams)
            return qobs_damaged(error, "the dtype or the shapes of its ranges are impossible");
        if (keying > KEYING_BLOCKS || (keying >= KEYING_GROUPS && layout.range.ndim != 2))
            return qobs_damaged(error, "the names of its ranges are impossible");
        if (!qobs_codec_holds(codec, qparams, 2 * element))
            return qobs_damaged(error, "its ranges are incomplete");
        RETURN_IF_FAILED(qobs_allocate_ranges(&o->runtime, &s->ranges, dtype, qparams, error));
        s->layout = layout;
    }
    qobs_code_elements(codec, s->ranges.min, s->layout.qparams, element);
    qobs_code_elements(codec, s->ranges.max, s->layout.qparams, element);
    return QOBS_OK;
}

/* ---- Mode -------------------------------------------------------------------------------------------------------- */

static int code_mode(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct mode_count *mode = &o->state.mode;
    const size_t n = o->state.layout.qparams, candidates = qobs_code_u32(codec, (uint32_t)mode->candidates);
    uint64_t count = 0;
    if (codec->loading && candidates > 0) {
        if (!o->stages.accumulator.ops->counts_mode || !qobs_codec_holds(codec, candidates, 8 * (1 + n)))
            return qobs_damaged(error, "its counted scales are impossible");
        RETURN_IF_FAILED(qobs_mode_reserve(&o->runtime, mode, n, candidates, error));
        mode->candidates = candidates;
    }
    for (size_t i = 0; i < candidates; i++) {
        qobs_code(codec, &mode->count[i], 8);
        qobs_code_elements(codec, qobs_mode_scale(mode, i), n, 4);
        qobs_code_elements(codec, qobs_mode_zero_point(mode, i), n, 4);
        count += mode->count[i];
    }
    return count > o->counts.batches ? qobs_damaged(error, "it counts more scales than batches") : QOBS_OK;
}

/* ---- Searches ---------------------------------------------------------------------------------------------------- */

static int code_importance(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct importance *importance = &o->importance;
    const uint64_t columns = qobs_code_u64(codec, (uint64_t)importance->columns);
    importance->tokens = qobs_code_u64(codec, importance->tokens);
    if (columns == 0)
        return importance->tokens == 0 ? QOBS_OK : qobs_damaged(error, "it has tokens without columns");
    if (codec->loading) {
        if (!o->stages.range.params.importance || !qobs_codec_holds(codec, columns, sizeof *importance->sum))
            return qobs_damaged(error, "its importance is impossible");
        const uint64_t tokens = importance->tokens;
        RETURN_IF_FAILED(qobs_importance_reserve(&o->runtime, importance, (int64_t)columns, error));
        importance->tokens = tokens;
    }
    qobs_code_elements(codec, importance->sum, (size_t)columns, sizeof *importance->sum);
    return QOBS_OK;
}

static bool record_is_possible(const qobs_observer *o, const struct search_record *r, uint32_t weighted)
{
    return r->steps == (int32_t)qobs_range_steps(&o->stages.range) && r->stop_step >= 0 && r->stop_step <= r->steps &&
           weighted <= 1 && (uint32_t)r->fault < IMPORTANCE_FAULTS;
}

static int code_record(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct search_record *r = &o->state.record;
    const uint64_t qparams = qobs_code_u64(codec, r->qparams);
    if (qparams == 0)
        return QOBS_OK;
    if (codec->loading) {
        if (qobs_state_is_empty(&o->state) || qparams != o->state.layout.qparams)
            return qobs_damaged(error, "its search is not of its ranges");
        RETURN_IF_FAILED(qobs_search_record_reserve(&o->runtime, r, (size_t)qparams, error));
    }
    r->steps = (int32_t)qobs_code_u32(codec, (uint32_t)r->steps);
    r->stop_step = (int32_t)qobs_code_u32(codec, (uint32_t)r->stop_step);
    const uint32_t weighted = qobs_code_u32(codec, r->weighted);
    r->fault = (enum importance_fault)qobs_code_u32(codec, (uint32_t)r->fault);
    if (codec->loading && !record_is_possible(o, r, weighted))
        return qobs_damaged(error, "its search is impossible");
    r->weighted = weighted;
    qobs_code_elements(codec, r->best_step, r->qparams, sizeof *r->best_step);
    qobs_code_elements(codec, r->error, r->qparams, sizeof *r->error);
    qobs_code_elements(codec, r->error_before, r->qparams, sizeof *r->error_before);
    if (codec->ends_early)
        return qobs_damaged(error, "its search is incomplete");
    const struct state_range *ops = o->stages.range.ops->state;
    const int32_t min_step = ops ? ops->min_step : -1;
    for (size_t q = 0; codec->loading && q < r->qparams; q++)
        if (r->best_step[q] < min_step || r->best_step[q] >= r->stop_step)
            return qobs_damaged(error, "a step it chose is impossible");
    return QOBS_OK;
}

/* ---- Histograms -------------------------------------------------------------------------------------------------- */

static bool bin_range_is_possible(const struct bin_range *range)
{
    const bool empty = isinf(range->lo) && range->lo > 0 && isinf(range->hi) && range->hi < 0;
    return isfinite(range->step) && (empty || (isfinite(range->lo) && isfinite(range->hi) && range->lo <= range->hi));
}

static int check_histogram(const struct histogram *h, qobs_error *error)
{
    for (size_t q = 0; q < h->qparams; q++)
        if (!bin_range_is_possible(&h->range[q]))
            return qobs_damaged(error, "the range of a histogram is impossible");
    for (size_t k = 0; k < h->qparams * h->bins; k++)
        if (!(h->mass[k] >= 0 && isfinite(h->mass[k])))
            return qobs_damaged(error, "a count is impossible");
    for (size_t i = 0; h->edges && i < h->bins; i++)
        if (!(h->edges[i] <= h->edges[i + 1]) || isinf(h->edges[i]) || isinf(h->edges[i + 1]))
            return qobs_damaged(error, "an edge is impossible");
    return QOBS_OK;
}

static int code_histogram(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct histogram *h = &o->state.histogram;
    const size_t qparams = o->state.layout.qparams;
    const uint64_t bins = qobs_code_u64(codec, h->bins);
    if (codec->loading) {
        if (o->state.layout.dtype != QOBS_F32 || bins < 1 || bins > QOBS_MOST_BINS ||
            !qobs_codec_holds(codec, qparams, 3 * sizeof(float) + bins * sizeof(double)))
            return qobs_damaged(error, "its histograms are incomplete");
        RETURN_IF_FAILED(
            qobs_histogram_allocate(&o->runtime, o->stages.reduction.histogram.ops, h, qparams, (size_t)bins, error));
    }
    for (size_t q = 0; q < h->qparams; q++) {
        qobs_code_elements(codec, &h->range[q].lo, 1, sizeof(float));
        qobs_code_elements(codec, &h->range[q].hi, 1, sizeof(float));
        qobs_code_elements(codec, &h->range[q].step, 1, sizeof(float));
    }
    qobs_code_elements(codec, h->mass, h->qparams * h->bins, sizeof *h->mass);
    if (h->edges)
        qobs_code_elements(codec, h->edges, h->bins + 1, sizeof *h->edges);
    if (codec->ends_early)
        return qobs_damaged(error, "its histograms are incomplete");
    return codec->loading ? check_histogram(h, error) : QOBS_OK;
}

/* ---- Reference amax, error weights, error sums ------------------------------------------------------------------- */

static int code_floats(struct codec *codec, qobs_observer *o, uint64_t n, float **floats, size_t *count,
                       qobs_error *error)
{
    if (n == 0)
        return QOBS_OK;
    if (codec->loading) {
        if (!qobs_codec_holds(codec, n, sizeof **floats))
            return qobs_damaged(error, "its reference amax or error weights are incomplete");
        *floats = qobs_allocate_state(&o->runtime, (size_t)n * sizeof **floats);
        if (!*floats)
            return qobs_no_memory(error, "observer: no memory for %zu bytes", (size_t)n * sizeof **floats);
        *count = (size_t)n;
    }
    qobs_code_elements(codec, *floats, (size_t)n, sizeof **floats);
    for (size_t i = 0; i < *count; i++)
        if (!((*floats)[i] >= 0) || isinf((*floats)[i]))
            return qobs_damaged(error, "its reference amax or error weights are impossible");
    return QOBS_OK;
}

static int code_sums(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct error_sums *sums = &o->state.sums;
    if (codec->loading && qobs_range_has_sums(o->stages.range.ops) && !qobs_state_is_empty(&o->state)) {
        const size_t count = o->state.layout.qparams * (size_t)qobs_range_steps(&o->stages.range);
        if (!qobs_codec_holds(codec, count, sizeof *sums->sum))
            return qobs_damaged(error, "its errors are incomplete");
        RETURN_IF_FAILED(qobs_error_sums_reserve(&o->runtime, sums, count, error));
    }
    qobs_code_elements(codec, sums->sum, sums->count, sizeof *sums->sum);
    return QOBS_OK;
}

static int code_reference(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct search_reference *r = &o->reference;
    r->dtype = (qobs_dtype)qobs_code_u32(codec, (uint32_t)r->dtype);
    const uint64_t n = qobs_code_u64(codec, r->count);
    if (codec->loading && (r->dtype > 0 ? !is_observable(r->dtype) : n > 0))
        return qobs_damaged(error, "the dtype of its reference amax is impossible");
    if (n > 0 && qobs_code_shape(codec, &r->shape) != n)
        return qobs_damaged(error, "the shape of its reference amax is impossible");
    RETURN_IF_FAILED(code_floats(codec, o, n, &r->amax, &r->count, error));
    return code_floats(codec, o, qobs_code_u64(codec, r->weights), &r->weight, &r->weights, error);
}

/* ---- All parts --------------------------------------------------------------------------------------------------- */

static bool has_ranges(const qobs_observer *o) { return !qobs_state_is_empty(&o->state); }

static bool has_search(const qobs_observer *o) { return qobs_range_searches(o->stages.range.ops); }

static bool has_histogram(const qobs_observer *o) { return has_ranges(o) && o->stages.reduction.histogram.ops; }

static bool has_reference(const qobs_observer *o) { return qobs_range_has_reference(o->stages.range.ops); }

static bool has_gram(const qobs_observer *o) { return qobs_needs_gram(&o->stages); }

static const struct part {
    bool (*exists)(const qobs_observer *observer); /* NULL: always */
    int (*code)(struct codec *codec, qobs_observer *observer, qobs_error *error);
} parts[] = {
    {NULL, code_counts},
    {NULL, code_global_range},
    {NULL, code_ranges},
    {has_ranges, code_mode},
    {has_search, code_importance},
    {has_search, code_record},
    {has_gram, qobs_code_gram},
    {qobs_is_optimal, qobs_code_optimal},
    {has_histogram, code_histogram},
    {has_reference, code_reference},
    {has_reference, code_sums},
};

int qobs_code_state(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!parts[i].exists || parts[i].exists(o))
            RETURN_IF_FAILED(parts[i].code(codec, o, error));
    if (codec->loading && has_ranges(o) && o->state.record.qparams == 0 && o->stages.range.ops->state)
        return qobs_damaged(error, "its ranges have not been searched");
    return QOBS_OK;
}
