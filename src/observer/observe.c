/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A batch is one prepare/commit pair. prepare() does everything that can fail and changes nothing that can be read.
 * commit() cannot fail. discard() drops what was prepared. A histogram is the exception: its rule changes the bins in
 * place as the last step that can fail, and leaves them as they were if it does. */
#include "observer/observer.h"

#include "base/error.h"
#include "base/fpenv.h"
#include "histogram/collect.h"
#include "measure/accumulators.h"
#include "number/convert.h"
#include "plan/make_plan.h"

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* True if the batch starts a new state: the first batch does, and one of another shape if the preset restarts. */
static bool starts_state(const qobs_observer *o, const struct layout *layout)
{
    const struct layout *old = &o->state.layout;
    const struct accumulator *a = &o->stages.accumulator;
    const bool same = qobs_same_shape(&old->range, &layout->range) && qobs_same_shape(&old->scale, &layout->scale);
    return qobs_state_is_empty(&o->state) || (a->restarts && (!same || (layout->dtype != old->dtype && a->replaces)));
}

int qobs_check_batch_dtype(const qobs_observer *o, qobs_dtype dtype, bool first, qobs_error *error)
{
    const qobs_dtype global = o->stages.accumulator.replaces ? 0 : o->global_range.dtype;
    const qobs_dtype before = first ? global : o->state.layout.dtype;
    if (before == 0 || dtype == before)
        return QOBS_OK;
    return qobs_invalid(error, "value: dtype is %s, the batches before were %s", qobs_dtype_name(dtype),
                        qobs_dtype_name(before));
}

static int check_layout(const qobs_observer *o, const struct layout *layout, bool first, qobs_error *error)
{
    const struct layout *old = &o->state.layout;
    if (!first && !(qobs_same_shape(&old->range, &layout->range) && old->keying == layout->keying))
        return qobs_invalid(error, "value: gives %zu qparams in %d dimensions, the batches before gave %zu in %d",
                            layout->qparams, layout->range.ndim, old->qparams, old->range.ndim);
    return qobs_check_batch_dtype(o, layout->dtype, first, error);
}

static int check_request(const qobs_observer *o, const struct layout *layout, bool observed, const struct request *r,
                         qobs_error *error)
{
    const size_t size = layout->qparams * qobs_dtype_size(layout->dtype);
    if (r && r->min && r->range_size != size)
        return qobs_invalid(error, "size: is %zu bytes for min and for max, expected %zu", r->range_size, size);
    if (r && r->qparams)
        return qobs_check_qparam_sizes(o, layout, observed, r->qparams, error);
    return QOBS_OK;
}

static int read_request(const qobs_observer *o, const struct request *r, qobs_error *error)
{
    if (r && r->min) {
        memcpy(r->min, o->state.ranges.min, r->range_size);
        memcpy(r->max, o->state.ranges.max, r->range_size);
    }
    if (r && r->qparams)
        return qobs_observer_qparams(o, r->qparams, error);
    return qobs_succeed(error);
}

/* ---- Prepare ----------------------------------------------------------------------------------------------------- */

/* The changes that a batch makes. */
struct pending {
    bool first;
    struct state fresh;  /* the new state, if the batch starts one */
    struct state *state; /* that one, or the observer's */
    struct layout layout;
    struct global_range global; /* dtype 0: none */
    struct importance importance;
    struct search_record record;
    struct optimal_result optimal;
    struct search_workspace workspace;
    struct nonfinite_count nonfinite;
    bool empty; /* a histogram's batch without a finite element */
};

/* Memory, so that commit() cannot fail. The observer's own state gains capacity and nothing else. */
static int reserve(const qobs_observer *o, const qobs_plan *plan, struct pending *p, qobs_error *error)
{
    const struct view *v = &plan->value;
    if (!p->state->batch.min)
        RETURN_IF_FAILED(
            qobs_allocate_ranges(&o->runtime, &p->state->batch, p->layout.dtype, p->layout.qparams, error));
    if (o->stages.accumulator.ops->counts_mode)
        RETURN_IF_FAILED(qobs_mode_reserve(&o->runtime, &p->state->mode, p->layout.qparams, 1, error));
    if (o->stages.range.params.importance && v->ndim > 0 && o->importance.columns == 0)
        return qobs_importance_reserve(&o->runtime, &p->importance, v->shape[v->ndim - 1], o->stages.range.params.peaks,
                                       error);
    return QOBS_OK;
}

/* One range for all those of a batch. */
static struct global_range global_range_of(const struct layout *layout, const struct ranges *batch)
{
    const size_t size = qobs_dtype_size(layout->dtype);
    struct global_range global = {.dtype = layout->dtype};
    memcpy(global.min, batch->min, size);
    memcpy(global.max, batch->max, size);
    for (size_t i = 1; i < layout->qparams; i++)
        qobs_update_running(layout->dtype, 1, 1, global.min, global.max, batch->min + i * size, batch->max + i * size);
    return global;
}

/* A histogram leaves out what is not finite. */
static bool has_no_finite_element(const struct state *state, const struct layout *layout)
{
    const float *min = (const float *)(const void *)state->batch.min,
                *max = (const float *)(const void *)state->batch.max;
    bool empty = state->histogram.bins > 0;
    for (size_t q = 0; empty && q < layout->qparams; q++)
        empty = min[q] > max[q];
    return empty;
}

static int measure(const qobs_observer *o, const qobs_plan *plan, const struct observed_batch *b, struct pending *p,
                   qobs_error *error)
{
    const struct reduction *r = &o->stages.reduction;
    struct state *s = p->state;
    const struct batch batch = {&o->runtime, o->kernels, plan, b->value->data};
    RETURN_IF_FAILED(r->ops->measure(r, &batch, &s->histogram, s->batch.min, s->batch.max, &p->nonfinite, error));
    p->empty = has_no_finite_element(s, &p->layout);
    if (p->empty && p->first && b->request)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "value: has no finite element, and there is nothing from before");
    if (b->forward && o->stages.traits.global == GLOBAL_FROM_TENSORS)
        p->global = global_range_of(&p->layout, &s->batch);
    return QOBS_OK;
}

static int search(const qobs_observer *o, const qobs_plan *plan, const struct observed_batch *b, struct pending *p,
                  qobs_error *error)
{
    const struct range_ops *ops = o->stages.range.ops;
    if (ops->batch)
        return qobs_search_batch(o, plan, b->value, p->global.dtype ? &p->global : NULL, &p->state->batch, &p->record,
                                 error);
    if (ops->state)
        return qobs_prepare_search(o, plan, &p->layout, p->first, p->state, &p->record, &p->workspace, error);
    return ops->optimal
               ? qobs_observe_optimal(o, plan, &p->layout, &p->state->batch, b->value->data, &p->optimal, error)
               : QOBS_OK;
}

static int prepare(qobs_observer *o, const qobs_plan *plan, const struct observed_batch *b, struct pending *p,
                   qobs_error *error)
{
    *p = (struct pending){.layout = qobs_layout_of(&o->stages, plan)};
    p->first = starts_state(o, &p->layout);
    p->state = p->first ? &p->fresh : &o->state;
    RETURN_IF_FAILED(check_layout(o, &p->layout, p->first, error));
    RETURN_IF_FAILED(check_request(o, &p->layout, true, b->request, error));
    RETURN_IF_FAILED(reserve(o, plan, p, error));
    RETURN_IF_FAILED(measure(o, plan, b, p, error));
    return search(o, plan, b, p, error);
}

static void discard(const qobs_observer *o, struct pending *p)
{
    if (p->first)
        qobs_state_release(&o->runtime, &p->fresh);
    qobs_importance_release(&o->runtime, &p->importance);
    qobs_search_record_release(&o->runtime, &p->record);
    qobs_optimal_result_release(&o->runtime, &p->optimal);
    qobs_search_workspace_release(&o->runtime, &p->workspace);
}

/* ---- Commit ------------------------------------------------------------------------------------------------------ */

/* f64 ranges keep what f32 holds of them. */
static void round_to_f32(struct ranges *ranges, size_t n)
{
    for (size_t i = 0; i < 2 * n; i++) {
        unsigned char *range = (i % 2 ? ranges->max : ranges->min) + i / 2 * sizeof(double);
        qobs_put_element(range, QOBS_F64, (double)(float)qobs_element(range, QOBS_F64));
    }
}

/* accumulator.skips_first_groups: the batch replaces the state of these qparams, and then is averaged with itself. */
static void replace_first_groups(struct state *s)
{
    const struct layout *layout = &s->layout;
    const size_t size = qobs_dtype_size(layout->dtype);
    const size_t step = layout->keying == KEYING_GROUPS ? (size_t)layout->range.extent[layout->range.ndim - 1] : 1;
    for (size_t i = 0; layout->keying != KEYING_BLOCKS && i < layout->qparams; i += step) {
        memcpy(s->ranges.min + i * size, s->batch.min + i * size, size);
        memcpy(s->ranges.max + i * size, s->batch.max + i * size, size);
    }
}

static void accumulate(qobs_observer *o, bool first)
{
    const struct accumulator *a = &o->stages.accumulator;
    struct state *s = &o->state;
    if (a->starts_in_f32 && o->counts.batches == 0 && s->layout.dtype == QOBS_F64)
        round_to_f32(&s->batch, s->layout.qparams);
    first |= a->replaces;
    if (first) {
        const struct ranges old = s->ranges;
        s->ranges = s->batch;
        s->batch = old;
    } else if (a->skips_first_groups) {
        replace_first_groups(s);
    }
    const struct ranges *batch = first ? &s->ranges : &s->batch;
    const struct range_update update = {s->layout.dtype, s->layout.qparams, s->ranges.min, s->ranges.max,
                                        batch->min,      batch->max,        first,         o->counts.batches};
    qobs_accumulate(a, &update);
}

/* Counts the scale and zero point that the accumulated ranges give. If upstream raises for them, nothing is counted. */
static void count_scale(qobs_observer *o)
{
    struct mode_count *mode = &o->state.mode;
    const struct range_view ranges = qobs_view_ranges(o);
    void *scale = qobs_mode_scale(mode, mode->candidates), *zero_point = qobs_mode_zero_point(mode, mode->candidates);
    if (qobs_formula_qparams(&o->stages.formula, &ranges, scale, zero_point, NULL) == QOBS_OK)
        qobs_mode_add(mode, 1);
}

void qobs_add_tokens(qobs_observer *o, const struct view *value)
{
    o->counts.tokens += qobs_tokens(value);
    if (o->stages.traits.counts_nonzero_tokens)
        o->counts.nonzero_tokens += qobs_nonzero_tokens(value);
}

/* Moves what was prepared into the observer; what it replaces goes to *p. */
static void adopt(qobs_observer *o, struct pending *p)
{
    const struct search_record record = o->state.record;
    const struct optimal_result optimal = o->state.optimal;
    if (p->first) {
        const struct state old = o->state;
        o->state = p->fresh;
        p->fresh = old;
        p->fresh.record = (struct search_record){0};
        p->fresh.optimal = (struct optimal_result){0};
    }
    o->state.layout = p->layout;
    o->state.record = p->record;
    o->state.optimal = p->optimal;
    p->record = record;
    p->optimal = optimal;
    if (p->importance.columns > 0) {
        o->importance = p->importance;
        p->importance = (struct importance){0};
    }
}

static void commit(qobs_observer *o, const qobs_plan *plan, const struct observed_batch *b, struct pending *p)
{
    o->counts.nan += p->nonfinite.nan;
    o->counts.inf += p->nonfinite.inf;
    if (p->empty)
        return;
    adopt(o, p);
    o->fused = o->fused && (qobs_is_optimal(o) || (o->stages.traits.global == GLOBAL_FROM_TENSORS && !b->forward));
    accumulate(o, p->first);
    if (o->stages.range.ops->state)
        qobs_search_accumulated(o, plan, b->value->data, &p->workspace);
    else if (o->stages.accumulator.ops->counts_mode)
        count_scale(o);
    if (p->global.dtype != 0)
        qobs_accumulate_global(&o->stages.accumulator, &o->global_range, &p->global);
    qobs_parts_observe(o, plan, b->forward);
}

/* ---- One batch --------------------------------------------------------------------------------------------------- */

/* A batch without elements, one that the preset ignores, or a preset that measures nothing. */
static int pass_over(qobs_observer *o, const struct view *view, bool ignored, const struct request *request,
                     qobs_error *error)
{
    const bool empty = qobs_state_is_empty(&o->state), measures = o->stages.reduction.ops->measure;
    RETURN_IF_FAILED(
        request && empty && measures
            ? qobs_fail(error, QOBS_ERROR_NO_DATA, "value: has no elements, and there is nothing from before")
            : check_request(o, &o->state.layout, !empty, request, error));
    o->counts.ignored += ignored;
    if (!measures && view->elements > 0) {
        o->counts.batches++;
        o->counts.elements += (uint64_t)view->elements;
        qobs_add_tokens(o, view);
    }
    return read_request(o, request, error);
}

int qobs_accept_batch(qobs_observer *o, const struct observed_batch *b, qobs_error *error)
{
    struct view view;
    qobs_plan *plan;
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    RETURN_IF_FAILED(qobs_view_of_tensor(&view, b->value, "value", error));
    const bool ignored =
        view.elements > 0 && o->stages.traits.first_batch_only && o->counts.batches > 0 && !qobs_optimal_is_stale(o);
    if (ignored)
        RETURN_IF_FAILED(qobs_require_kernel_dtype(view.dtype, "value", error));
    if (view.elements == 0 || !o->stages.reduction.ops->measure || ignored)
        return pass_over(o, &view, ignored, b->request, error);
    const struct runtime runtime = {.allocator = o->runtime.allocator};
    if (b->axes) {
        const struct granularity along = {.ops = &qobs_granularity_along,
                                          .params = {.axes = *b->axes, .keying = o->stages.granularity.params.keying}};
        RETURN_IF_FAILED(qobs_plan_new(&plan, &along, b->value, NULL, &runtime, error));
    } else {
        RETURN_IF_FAILED(qobs_plan_new(&plan, &o->stages.granularity, b->value, b->g_idx, &runtime, error));
    }
    plan->as_f32 = qobs_reduces_as_f32(&o->stages.reduction, plan->dtype);
    struct pending pending;
    const fp_mode mode = fp_enter();
    const int status = prepare(o, plan, b, &pending, error);
    if (status == QOBS_OK)
        commit(o, plan, b, &pending);
    discard(o, &pending);
    fp_leave(mode);
    qobs_plan_destroy(plan);
    return status == QOBS_OK ? read_request(o, b->request, error) : status;
}
