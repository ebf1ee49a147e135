/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A batch is one prepare/commit pair. prepare() does everything that can fail and changes nothing that can be read.
 * commit() cannot fail. The parts that are not taken are released. A histogram is the exception: its rule changes the
 * bins in place as the last step that can fail, and leaves them as they were if it does. */
#include "observer/state_parts.h"

#include "base/fpenv.h"
#include "histogram/collect.h"
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
        return qobs_qparams_from_observer(o, r->qparams, error);
    return qobs_succeed(error);
}

/* ---- Prepare ----------------------------------------------------------------------------------------------------- */

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

static int measure(const qobs_observer *o, const struct observed_batch *b, struct changes *c, qobs_error *error)
{
    const struct reduction *r = &o->stages.reduction;
    struct state *s = c->state;
    const struct batch batch = {&o->runtime, o->kernels, c->plan, b->value->data};
    RETURN_IF_FAILED(r->ops->measure(r, &batch, &s->histogram, s->batch.min, s->batch.max, &c->nonfinite, error));
    c->empty = has_no_finite_element(s, &c->layout);
    if (c->empty && c->first && b->request)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "value: has no finite element, and there is nothing from before");
    if (c->forward && o->stages.traits.global == GLOBAL_FROM_TENSORS)
        c->next->global_range = global_range_of(&c->layout, &s->batch);
    return QOBS_OK;
}

static int search(const qobs_observer *o, struct changes *c, const qobs_tensor *value, qobs_error *error)
{
    const struct range_ops *ops = o->stages.range.ops;
    return ops->batch     ? qobs_search_batch(o, c, value, error)
           : ops->state   ? qobs_prepare_search(o, c, error)
           : ops->optimal ? qobs_observe_optimal(o, c, value->data, error)
                          : QOBS_OK;
}

static int prepare(qobs_observer *o, const struct observed_batch *b, struct changes *c, qobs_error *error)
{
    RETURN_IF_FAILED(check_layout(o, &c->layout, c->first, error));
    RETURN_IF_FAILED(check_request(o, &c->layout, true, b->request, error));
    RETURN_IF_FAILED(qobs_parts_prepare_batch(o, c, error));
    RETURN_IF_FAILED(measure(o, b, c, error));
    return search(o, c, b->value, error);
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

void qobs_add_tokens(qobs_observer *o, const struct view *value)
{
    o->counts.tokens += qobs_tokens(value);
    if (o->stages.traits.counts_nonzero_tokens)
        o->counts.nonzero_tokens += qobs_nonzero_tokens(value);
}

static void commit(qobs_observer *o, const struct observed_batch *b, struct changes *c)
{
    o->counts.nan += c->nonfinite.nan;
    o->counts.inf += c->nonfinite.inf;
    if (c->empty)
        return;
    qobs_parts_adopt(o, c->next, c->first);
    o->state.layout = c->layout;
    o->fused = o->fused && (qobs_is_optimal(o) || (o->stages.traits.global == GLOBAL_FROM_TENSORS && !c->forward));
    accumulate(o, c->first);
    if (o->stages.range.ops->state)
        qobs_search_accumulated(o, c, b->value->data);
    qobs_parts_observe(o, c);
}

static int observe(qobs_observer *o, const qobs_plan *plan, const struct observed_batch *b, qobs_error *error)
{
    qobs_observer next;
    struct changes c = {.plan = plan, .forward = b->forward, .layout = qobs_layout_of(&o->stages, plan), .next = &next};
    next.runtime = o->runtime;
    next.parts = o->parts;
    qobs_parts_clear(&next);
    c.first = starts_state(o, &c.layout);
    c.state = c.first ? &next.state : &o->state;
    FP_SCOPE;
    const int status = prepare(o, b, &c, error);
    if (status == QOBS_OK)
        commit(o, b, &c);
    qobs_parts_release(&next);
    qobs_search_workspace_release(&o->runtime, &c.workspace);
    return status;
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
    const int status = observe(o, plan, b, error);
    qobs_plan_destroy(plan);
    return status == QOBS_OK ? read_request(o, b->request, error) : status;
}
