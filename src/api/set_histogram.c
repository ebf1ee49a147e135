/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The state of a histogram observer from outside: counts, edges and range that another program has collected. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "base/struct_size.h"
#include "base/tensor.h"
#include "config/settings.h"
#include "number/convert.h"
#include "observer/observer.h"
#include "observer/searches.h"
#include "plan/make_plan.h"
#include "qobs/plan.h"

enum { MAX_SUM_BITS = 53 };              /* a mass is a double */
#define MOST_BATCHES (UINT64_C(1) << 62) /* more could wrap when states merge */

static int check_counts(const qobs_observer *o, const qobs_tensor *counts, struct view *view, qobs_error *error)
{
    const struct histogram_rule *rule = &o->stages.reduction.histogram;
    RETURN_IF_FAILED(qobs_view_of_tensor(view, counts, "counts", error));
    if (view->ndim != 1 || view->elements < 1 || view->elements > QOBS_MOST_BINS)
        return qobs_invalid(error, "counts: has %d dimensions and %lld elements, allowed are 1 and 1 to %d", view->ndim,
                            (long long)view->elements, QOBS_MOST_BINS);
    if (view->dtype != QOBS_F32 && view->dtype != QOBS_F64 && view->dtype != QOBS_I32 && view->dtype != QOBS_I64)
        return qobs_invalid(error, "counts: dtype is %s, allowed are F32, F64, I32, I64", qobs_dtype_name(view->dtype));
    if (rule->ops->same_bins && (size_t)view->elements != rule->params.bins)
        return qobs_invalid(error, "counts: has %lld elements, the setting bins is %zu", (long long)view->elements,
                            rule->params.bins);
    double sum = 0;
    for (int64_t i = 0; i < view->elements; i++) {
        const double count = qobs_number_at(view, i);
        sum += count;
        if (!(count >= 0) || sum > ldexp(1, MAX_SUM_BITS))
            return qobs_invalid(error, "counts: [%lld] is %g, allowed are numbers from 0, at most 2^53 in total",
                                (long long)i, count);
    }
    return QOBS_OK;
}

static int check_edges(const qobs_tensor *bin_edges, int64_t bins, struct view *view, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_view_of_tensor(view, bin_edges, "bin_edges", error));
    if (view->ndim != 1 || view->elements != bins + 1 || (view->dtype != QOBS_F32 && view->dtype != QOBS_F64))
        return qobs_invalid(error,
                            "bin_edges: has %d dimensions, %lld elements and dtype %s, allowed are 1, %lld, F32 or F64",
                            view->ndim, (long long)view->elements, qobs_dtype_name(view->dtype), (long long)bins + 1);
    for (int64_t i = 0; i < bins; i++) {
        const double edge = qobs_number_at(view, i), next = qobs_number_at(view, i + 1);
        if (!(edge <= next) || isinf(edge) || isinf(next))
            return qobs_invalid(error, "bin_edges: [%lld] is %g and the next one %g, they must be finite and ascend",
                                (long long)i, edge, next);
    }
    return QOBS_OK;
}

static bool has_edges(const struct bin_range *range, const struct view *edges)
{
    const int64_t bins = edges->elements - 1;
    for (int64_t i = 0; i <= bins; i++)
        if ((double)qobs_bin_edge(range, (size_t)bins, (size_t)i) != qobs_number_at(edges, i))
            return false;
    return true;
}

/* The range whose edges those are: of a linspace, or of an arange with their first step. */
static int range_of_edges(const struct view *edges, bool stored, struct bin_range *range, qobs_error *error)
{
    *range = (struct bin_range){.lo = (float)qobs_number_at(edges, 0),
                                .hi = (float)qobs_number_at(edges, edges->elements - 1)};
    if (stored || has_edges(range, edges))
        return QOBS_OK;
    range->step = (float)qobs_number_at(edges, 1) - range->lo;
    if (has_edges(range, edges))
        return QOBS_OK;
    return qobs_invalid(error, "bin_edges: are neither those of linspace nor those of arange in float32");
}

static int find_range(const qobs_observer *o, const qobs_histogram_state *h, const struct view *counts,
                      struct view *edges, struct bin_range *range, qobs_error *error)
{
    const bool stored = o->stages.reduction.histogram.ops->stores_edges;
    if (h->bin_edges) {
        const int status = check_edges(h->bin_edges, counts->elements, edges, error);
        return status == QOBS_OK ? range_of_edges(edges, stored, range, error) : status;
    }
    if (stored)
        return qobs_invalid(error, "bin_edges: is NULL, %s stores them", o->config.preset->name);
    if (!(h->min <= h->max) || isinf(h->min) || isinf(h->max))
        return qobs_invalid(error, "min, max: %g to %g is no range of finite numbers", (double)h->min, (double)h->max);
    *range = (struct bin_range){.lo = h->min, .hi = h->max};
    return QOBS_OK;
}

/* The layout that a batch gives: histogram observers have one range in F32. */
static int find_layout(const qobs_observer *o, struct layout *layout, qobs_error *error)
{
    static const float element = 0;
    static const int64_t shape[] = {1};
    const qobs_tensor value = {sizeof value, &element, QOBS_F32, 1, shape, NULL};
    qobs_plan plan;
    RETURN_IF_FAILED(qobs_plan_make(&plan, &o->stages.granularity, &value, NULL, &o->runtime, error));
    *layout = qobs_layout_of(&o->stages, &plan);
    qobs_plan_unmake(&plan);
    return QOBS_OK;
}

static int make_state(const qobs_observer *o, const struct view *counts, const struct view *edges,
                      const struct bin_range *range, struct state *state, qobs_error *error)
{
    const struct histogram_ops *ops = o->stages.reduction.histogram.ops;
    RETURN_IF_FAILED(find_layout(o, &state->layout, error));
    RETURN_IF_FAILED(qobs_allocate_ranges(&o->runtime, &state->ranges, QOBS_F32, 1, error));
    RETURN_IF_FAILED(qobs_histogram_allocate(&o->runtime, ops, &state->histogram, 1, (size_t)counts->elements, error));
    for (int64_t i = 0; i < counts->elements; i++)
        state->histogram.mass[i] = qobs_number_at(counts, i);
    for (int64_t i = 0; state->histogram.edges && i <= counts->elements; i++)
        state->histogram.edges[i] = qobs_number_at(edges, i);
    state->histogram.range[0] = *range;
    qobs_put_element(state->ranges.min, QOBS_F32, (double)range->lo);
    qobs_put_element(state->ranges.max, QOBS_F32, (double)range->hi);
    return QOBS_OK;
}

int qobs_observer_set_histogram(qobs_observer *o, const qobs_histogram_state *given, qobs_error *error)
{
    qobs_histogram_state h;
    struct view counts, edges = {0};
    struct bin_range range;
    struct state state = {0};
    if (!o)
        return qobs_invalid(error, "observer: is NULL");
    if (!o->stages.reduction.histogram.ops)
        return qobs_invalid(error, "observer: %s has no histogram", o->config.preset->name);
    RETURN_IF_FAILED(ARGS_READ(qobs_histogram_state, &h, given, batches, error));
    if (h.batches > MOST_BATCHES)
        return qobs_invalid(error, "batches: is %llu, at most %llu are allowed", (unsigned long long)h.batches,
                            (unsigned long long)MOST_BATCHES);
    RETURN_IF_FAILED(check_counts(o, h.counts, &counts, error));
    RETURN_IF_FAILED(find_range(o, &h, &counts, &edges, &range, error));
    const int status = make_state(o, &counts, &edges, &range, &state, error);
    if (status != QOBS_OK) {
        qobs_state_release(&o->runtime, &state);
        return status;
    }
    double elements = 0;
    for (int64_t i = 0; i < counts.elements; i++)
        elements += qobs_number_at(&counts, i);
    qobs_observer_reset(o);
    o->state = state;
    o->counts = (qobs_counts){
        .struct_size = o->counts.struct_size, .batches = h.batches ? h.batches : 1, .elements = (uint64_t)elements};
    return qobs_succeed(error);
}

/* ---- Hessian ----------------------------------------------------------------------------------------------------- */

/* The Hessian of errors from outside, in place of activations: it is kept as the Gram of one token, and its diagonal as
 * the importance of the columns. */

static int check_observer(const qobs_observer *o, qobs_error *error)
{
    if (!o)
        return qobs_invalid(error, "observer: is NULL");
    if (o->stages.range.params.peaks)
        return qobs_invalid(error, "observer: %s needs activations, a Hessian alone has not their largest magnitudes",
                            o->config.preset->name);
    if (!qobs_needs_gram(&o->stages))
        return qobs_invalid(error, "observer: %s does not weigh errors by a Hessian%s", o->config.preset->name,
                            qobs_setting_find(o->config.preset, "hessian_block_size") ? " without hessian_block_size"
                                                                                      : "");
    if (o->counts.batches > 0)
        return qobs_invalid(error, "observer: has observed %llu batches, hessian comes before the first",
                            (unsigned long long)o->counts.batches);
    return QOBS_OK;
}

/* Columns of a block, if there are that many in all. A Model-Optimizer search does without a Hessian if a block has
 * fewer than the setting says. */
static int64_t block_of(const qobs_observer *o, const struct gram *gram)
{
    const struct range_rule *range = &o->stages.range;
    return range->ops->state ? range->params.multiplier.hessian_block : gram->block;
}

/* Makes the view and a gram of its shape, without sums. */
static int check_shape(const qobs_observer *o, const qobs_tensor *hessian, struct view *h, struct gram *gram,
                       qobs_error *error)
{
    RETURN_IF_FAILED(qobs_view_of_tensor(h, hessian, "hessian", error));
    if (h->dtype != QOBS_F32 && h->dtype != QOBS_F64)
        return qobs_invalid(error, "hessian: dtype is %s, allowed are F32 and F64", qobs_dtype_name(h->dtype));
    if (h->ndim != 3 || h->elements == 0)
        return qobs_invalid(error, "hessian: has %d dimensions and %lld elements, allowed are 3 and at least 1",
                            h->ndim, (long long)h->elements);
    const int64_t blocks = h->shape[0], block = h->shape[1];
    if (block != h->shape[2])
        return qobs_invalid(error, "hessian: has blocks of %lld rows and %lld columns, allowed are squares",
                            (long long)block, (long long)h->shape[2]);
    *gram = qobs_gram_for(&o->stages, blocks * block); /* fits, as the number of elements does */
    if (block_of(o, gram) != block || gram->block != block || qobs_gram_blocks(gram) != blocks)
        return qobs_invalid(
            error, "hessian: has %lld blocks of %lld columns, allowed for %lld columns are blocks of %lld",
            (long long)blocks, (long long)block, (long long)gram->columns, (long long)block_of(o, gram));
    return QOBS_OK;
}

static double entry(const struct view *h, int64_t i, int64_t j, int64_t k)
{
    return qobs_element(h->data + i * h->strides[0] + j * h->strides[1] + k * h->strides[2], h->dtype);
}

static int check_entries(const struct view *h, qobs_error *error)
{
    for (int64_t i = 0; i < h->shape[0]; i++)
        for (int64_t j = 0; j < h->shape[1]; j++)
            for (int64_t k = 0; k < h->shape[2]; k++) {
                const double x = entry(h, i, j, k);
                if (!isfinite(x) || (j == k && x < 0))
                    return qobs_invalid(error, "hessian: [%lld][%lld][%lld] is %g, allowed are finite numbers%s",
                                        (long long)i, (long long)j, (long long)k, x,
                                        j == k ? " from 0 on the diagonal" : "");
            }
    return QOBS_OK;
}

/* e^T H e depends on the symmetric part of H alone. Halves do not overflow; equal entries keep their bits. */
static double symmetric(const struct view *h, int64_t i, int64_t j, int64_t k)
{
    const double a = entry(h, i, j, k), b = entry(h, i, k, j);
    return a == b ? a : a / 2 + b / 2;
}

static void fill(const struct view *h, struct gram *gram, struct importance *importance)
{
    const int64_t block = gram->block;
    gram->tokens = importance->tokens = 1;
    for (int64_t i = 0; i < h->shape[0]; i++) {
        double *const sum = gram->sum + i * block * block;
        for (int64_t j = 0; j < block; j++) {
            for (int64_t k = 0; k <= j; k++)
                sum[j * block + k] = sum[k * block + j] = symmetric(h, i, j, k);
            importance->sum[i * block + j] = sum[j * block + j];
        }
    }
}

/* Takes the memory of activations observed before, if it has the size. */
static int replace(qobs_observer *o, const struct view *h, struct gram *gram, qobs_error *error)
{
    struct importance importance = {0};
    const bool same = o->gram.sum && o->gram.columns == gram->columns && o->importance.columns == gram->columns;
    if (!same) {
        RETURN_IF_FAILED(qobs_importance_reserve(&o->runtime, &importance, gram->columns, false, error));
        const int status = qobs_gram_reserve(&o->runtime, gram, error);
        if (status != QOBS_OK) {
            qobs_importance_release(&o->runtime, &importance);
            return status;
        }
        qobs_importance_release(&o->runtime, &o->importance);
        qobs_gram_release(&o->runtime, &o->gram);
        o->importance = importance;
        o->gram = *gram;
    }
    fill(h, &o->gram, &o->importance);
    return QOBS_OK;
}

int qobs_observer_set_hessian(qobs_observer *o, const qobs_tensor *hessian, qobs_error *error)
{
    struct view view;
    struct gram gram;
    RETURN_IF_FAILED(check_observer(o, error));
    RETURN_IF_FAILED(check_shape(o, hessian, &view, &gram, error));
    const fp_mode mode = fp_enter();
    int status = check_entries(&view, error);
    if (status == QOBS_OK)
        status = replace(o, &view, &gram, error);
    fp_leave(mode);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}
