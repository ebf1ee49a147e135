/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Counts, ranges, modes and histograms as parts of an observer. Numbers of a saved state are checked before they are
 * used, because it may come from anywhere. */
#include "observer/state_parts.h"

#include "base/fpenv.h"
#include "number/convert.h"

/* ---- Counts ------------------------------------------------------------------------------------------------------ */

/* In the order of saved states. */
static const size_t counts[] = {
    offsetof(qobs_counts, batches),
    offsetof(qobs_counts, elements),
    offsetof(qobs_counts, nan),
    offsetof(qobs_counts, inf),
    offsetof(qobs_counts, tokens),
    offsetof(qobs_counts, nonzero_tokens),
    offsetof(qobs_counts, ignored) /* since format 3 */,
};

enum { COUNTS = sizeof counts / sizeof *counts };

static uint64_t *count_of(const qobs_observer *o, size_t i)
{
    return (uint64_t *)(void *)((unsigned char *)&o->counts + counts[i]);
}

static int code_counts(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    (void)error;
    for (size_t i = 0; i < (codec->format >= 3 ? COUNTS : COUNTS - 1); i++)
        qobs_code(codec, count_of(o, i), 8);
    return QOBS_OK;
}

static void observe_counts(qobs_observer *o, const struct changes *c)
{
    if (c->forward)
        qobs_add_tokens(o, &c->plan->value);
    o->counts.batches++;
    o->counts.elements += (uint64_t)c->plan->value.elements;
}

static void merge_counts(struct merge *m)
{
    for (size_t i = 0; i < m->count; i++)
        for (size_t k = 0; k < COUNTS; k++)
            *count_of(m->o, k) += *count_of(m->others[i], k);
}

/* ---- Ranges of the qparams and of whole tensors ------------------------------------------------------------------ */

static int code_global_range(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct global_range *r = &o->global_range;
    QOBS_CODE_MEMBER(codec, qobs_dtype, r->dtype);
    if (r->dtype == 0)
        return QOBS_OK;
    if (!qobs_is_observable(r->dtype) || !o->stages.traits.has_global_range)
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
        if (!qobs_is_observable(dtype) || qparams == 0 || scales != qparams)
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

static void observe_global(qobs_observer *o, const struct changes *c)
{
    if (c->next->global_range.dtype != 0)
        qobs_accumulate_global(&o->stages.accumulator, &o->global_range, &c->next->global_range);
}

static int prepare_batch_ranges(const qobs_observer *o, struct changes *c, qobs_error *error)
{
    struct ranges *batch = &c->state->batch;
    return batch->min ? QOBS_OK : qobs_allocate_ranges(&o->runtime, batch, c->layout.dtype, c->layout.qparams, error);
}

static int reserve_ranges(qobs_observer *o, const struct part_size *p, qobs_error *error)
{
    return qobs_allocate_ranges(&o->runtime, &o->state.ranges, p->layout->dtype, p->layout->qparams, error);
}

static void release_ranges(const struct runtime *runtime, struct state *state)
{
    qobs_release_ranges(runtime, &state->ranges);
    qobs_release_ranges(runtime, &state->batch);
}

/* All global ranges have one dtype. */
static int prepare_global(struct merge *m, qobs_error *error)
{
    struct global_range *global = &m->next.global_range;
    *global = m->o->global_range;
    for (size_t i = 0; i < m->count; i++) {
        const struct global_range *theirs = &m->others[i]->global_range;
        if (global->dtype == 0)
            *global = *theirs;
        if (theirs->dtype != 0 && theirs->dtype != global->dtype)
            return qobs_invalid(error, "others[%zu]: has a global range of %s, the observer of %s", i,
                                qobs_dtype_name(theirs->dtype), qobs_dtype_name(global->dtype));
    }
    return QOBS_OK;
}

/* An observer without ranges starts with those of the model. */
static int prepare_ranges(struct merge *m, qobs_error *error)
{
    if (!m->model || m->own)
        return QOBS_OK;
    const struct state *from = &m->model->state;
    m->state->layout = from->layout;
    RETURN_IF_FAILED(
        qobs_allocate_ranges(&m->o->runtime, &m->state->ranges, from->layout.dtype, from->layout.qparams, error));
    memcpy(m->state->ranges.min, from->ranges.min, from->ranges.size);
    return QOBS_OK;
}

/* Minima and maxima of the qparams, or of whole tensors; min NULL: there are none. */
struct bounds {
    qobs_dtype dtype;
    size_t n;
    unsigned char *min, *max;
};

static struct bounds bounds_of(const qobs_observer *o, bool global)
{
    struct global_range *g = (struct global_range *)&o->global_range;
    const struct state *s = &o->state;
    return global ? (struct bounds){g->dtype, 1, g->dtype ? g->min : NULL, g->max}
                  : (struct bounds){s->layout.dtype, s->layout.qparams, s->ranges.min, s->ranges.max};
}

/* `own`: o had such bounds before, else they are a copy of another's. */
static void merge_means(const struct merge *m, bool global, bool own)
{
    const struct bounds to = bounds_of(m->o, global);
    const size_t size = qobs_dtype_size(to.dtype);
    for (size_t at = 0; at < 2 * to.n; at++) {
        const size_t offset = at / 2 * size;
        unsigned char *bound = (at % 2 ? to.max : to.min) + offset;
        double sum = own ? qobs_element(bound, to.dtype) : 0, n = own ? 1 : 0;
        for (size_t i = 0; i < m->count; i++) {
            const struct bounds from = bounds_of(m->others[i], global);
            if (from.min) {
                sum += qobs_element((at % 2 ? from.max : from.min) + offset, to.dtype);
                n++;
            }
        }
        qobs_put_element(bound, to.dtype, sum / n);
    }
}

static void merge_ranges(const struct merge *m, bool global, bool own)
{
    const struct bounds to = bounds_of(m->o, global);
    if (m->o->stages.accumulator.merge == MERGE_MEANS)
        merge_means(m, global, own);
    for (size_t i = 0; m->o->stages.accumulator.merge == MERGE_EXTREMES && i < m->count; i++) {
        const struct bounds from = bounds_of(m->others[i], global);
        if (from.min)
            qobs_update_running(to.dtype, to.n, 1, to.min, to.max, from.min, from.max);
    }
}

static void merge_global(struct merge *m)
{
    const bool own = m->o->global_range.dtype != 0;
    m->o->global_range = m->next.global_range;
    if (m->next.global_range.dtype != 0)
        merge_ranges(m, true, own);
}

static void merge_own_ranges(struct merge *m)
{
    const struct state_range *ops = m->o->stages.range.ops->state;
    const struct search_state state = qobs_search_state(m->o);
    if (ops && ops->before_merge)
        ops->before_merge(&state);
    if (m->model)
        merge_ranges(m, false, m->own);
}

/* ---- Mode -------------------------------------------------------------------------------------------------------- */

/* Every saved state has the number of its modes. */
static int reserve_mode(qobs_observer *o, const struct part_size *p, qobs_error *error)
{
    enum { MODES = 3 }; /* different scales after the first */
    return p->stages->accumulator.ops->counts_mode
               ? qobs_mode_reserve(&o->runtime, &o->state.mode, p->layout->qparams, p->copy == 0 ? 1 : MODES, error)
               : QOBS_OK;
}

static int prepare_batch_mode(const qobs_observer *o, struct changes *c, qobs_error *error)
{
    return o->stages.accumulator.ops->counts_mode
               ? qobs_mode_reserve(&o->runtime, &c->state->mode, c->layout.qparams, 1, error)
               : QOBS_OK;
}

/* Counts the scale and zero point that the accumulated ranges give, unless a search does. If upstream raises for them,
 * nothing is counted. */
static void observe_mode(qobs_observer *o, const struct changes *c)
{
    (void)c;
    if (!o->stages.accumulator.ops->counts_mode || o->stages.range.ops->state)
        return;
    struct mode_count *mode = &o->state.mode;
    const struct range_view ranges = qobs_view_ranges(o);
    void *scale = qobs_mode_scale(mode, mode->candidates), *zero_point = qobs_mode_zero_point(mode, mode->candidates);
    if (qobs_formula_qparams(&o->stages.formula, &ranges, scale, zero_point, NULL) == QOBS_OK)
        qobs_mode_add(mode, 1);
}

static void release_mode(const struct runtime *runtime, struct state *state)
{
    qobs_mode_release(runtime, &state->mode);
}

static int code_mode(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct mode_count *mode = &o->state.mode;
    if (qobs_state_is_empty(&o->state))
        return QOBS_OK;
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

static int prepare_mode(struct merge *m, qobs_error *error)
{
    size_t more = 0;
    for (size_t i = 0; i < m->count; i++)
        more += m->others[i]->state.mode.candidates;
    return more > 0 ? qobs_mode_reserve(&m->o->runtime, &m->state->mode, m->model->state.layout.qparams, more, error)
                    : QOBS_OK;
}

static void merge_mode(struct merge *m)
{
    struct mode_count *to = &m->o->state.mode;
    for (size_t i = 0; i < m->count; i++) {
        const struct mode_count *from = &m->others[i]->state.mode;
        for (size_t k = 0; k < from->candidates; k++) {
            memcpy(qobs_mode_scale(to, to->candidates), qobs_mode_scale(from, k),
                   2 * 4 * from->n); /* and zero points */
            qobs_mode_add(to, from->count[k]);
        }
    }
}

/* ---- Histograms -------------------------------------------------------------------------------------------------- */

static bool has_histogram(const struct stages *stages) { return stages->reduction.histogram.ops; }

static int reserve_histogram(qobs_observer *o, const struct part_size *p, qobs_error *error)
{
    const struct histogram_rule *rule = &p->stages->reduction.histogram;
    return qobs_histogram_allocate(&o->runtime, rule->ops, &o->state.histogram, p->layout->qparams, rule->params.bins,
                                   error);
}

static void release_histogram(const struct runtime *runtime, struct state *state)
{
    qobs_histogram_release(runtime, &state->histogram);
}

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
    if (qobs_state_is_empty(&o->state))
        return QOBS_OK;
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

/* All histograms as one, which later replaces the observer's. */
static int prepare_histogram(struct merge *m, qobs_error *error)
{
    struct histogram *all = &m->next.state.histogram;
    const struct histogram_rule *rule = &m->o->stages.reduction.histogram;
    const struct runtime *runtime = &m->o->runtime;
    if (!rule->ops || !m->model)
        return QOBS_OK;
    FP_SCOPE;
    int status = qobs_histogram_copy(runtime, rule->ops, all, &m->model->state.histogram, error);
    for (size_t i = 0; status == QOBS_OK && i < m->count; i++)
        if (m->others[i] != m->model && !qobs_state_is_empty(&m->others[i]->state))
            status = rule->ops->merge(rule, runtime, all, &m->others[i]->state.histogram, error);
    return status;
}

static void adopt_histogram(qobs_observer *o, qobs_observer *next)
{
    if (next->state.histogram.bins > 0)
        SWAP(struct histogram, o->state.histogram, next->state.histogram);
}

/* ---- The rows ---------------------------------------------------------------------------------------------------- */

const struct part qobs_part_counts = {.observe = observe_counts, .code = code_counts, .merge = merge_counts};
const struct part qobs_part_global_range = {
    .observe = observe_global, .code = code_global_range, .prepare_merge = prepare_global, .merge = merge_global};
const struct part qobs_part_ranges = {.copies = 2,
                                      .reserve = reserve_ranges,
                                      .release_state = release_ranges,
                                      .prepare_batch = prepare_batch_ranges,
                                      .code = code_ranges,
                                      .prepare_merge = prepare_ranges,
                                      .merge = merge_own_ranges};
const struct part qobs_part_mode = {.copies = 2,
                                    .reserve = reserve_mode,
                                    .release_state = release_mode,
                                    .prepare_batch = prepare_batch_mode,
                                    .observe = observe_mode,
                                    .code = code_mode,
                                    .prepare_merge = prepare_mode,
                                    .merge = merge_mode};
const struct part qobs_part_histogram = {.exists = has_histogram,
                                         .copies = 2,
                                         .reserve = reserve_histogram,
                                         .release_state = release_histogram,
                                         .adopt = adopt_histogram,
                                         .code = code_histogram,
                                         .prepare_merge = prepare_histogram};
