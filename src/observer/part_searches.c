/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The parts that searches and weights of errors have. */

#include "base/fpenv.h"
#include "number/convert.h"
#include "observer/state_parts.h"

/* ---- Importance -------------------------------------------------------------------------------------------------- */

static bool searches(const struct stages *stages) { return qobs_range_searches(stages->range.ops); }

static int reserve_importance(qobs_observer *o, const struct part_size *p, qobs_error *error)
{
    return p->stages->range.params.importance
               ? qobs_importance_reserve(&o->runtime, &o->importance, p->columns, p->stages->range.params.peaks, error)
               : QOBS_OK;
}

/* The columns of the first batch count before there are activations. */
static int prepare_batch_importance(const qobs_observer *o, struct changes *c, qobs_error *error)
{
    const struct range_params *range = &o->stages.range.params;
    const struct view *v = &c->plan->value;
    return range->importance && v->ndim > 0 && o->importance.columns == 0
               ? qobs_importance_reserve(&o->runtime, &c->next->importance, v->shape[v->ndim - 1], range->peaks, error)
               : QOBS_OK;
}

static void adopt_importance(qobs_observer *o, qobs_observer *next)
{
    if (next->importance.columns > 0)
        SWAP(struct importance, o->importance, next->importance);
}

static void release_importance(qobs_observer *o) { qobs_importance_release(&o->runtime, &o->importance); }

static int code_importance(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct importance *importance = &o->importance;
    const struct range_params *range = &o->stages.range.params;
    const uint64_t columns = qobs_code_u64(codec, (uint64_t)importance->columns);
    qobs_code(codec, &importance->tokens, 8);
    if (columns == 0)
        return importance->tokens == 0 ? QOBS_OK : qobs_damaged(error, "it has tokens without columns");
    if (codec->loading) {
        if (!range->importance || !qobs_codec_holds(codec, columns, (range->peaks ? 2 : 1) * sizeof(double)))
            return qobs_damaged(error, "its importance is impossible");
        const uint64_t tokens = importance->tokens;
        RETURN_IF_FAILED(qobs_importance_reserve(&o->runtime, importance, (int64_t)columns, range->peaks, error));
        importance->tokens = tokens;
    }
    qobs_code_elements(codec, importance->sum, qobs_importance_count(importance), sizeof *importance->sum);
    return QOBS_OK;
}

/* Importance has one number of columns in all observers that have any. */
static int prepare_importance(struct merge *m, qobs_error *error)
{
    int64_t columns = m->o->importance.columns;
    for (size_t i = 0; i < m->count; i++) {
        const int64_t theirs = m->others[i]->importance.columns;
        if (columns > 0 && theirs > 0 && theirs != columns)
            return qobs_invalid(error, "others[%zu]: has importance of %lld columns, not of %lld", i, (long long)theirs,
                                (long long)columns);
        columns = theirs > 0 ? theirs : columns;
    }
    return columns > 0 && m->o->importance.columns == 0
               ? qobs_importance_reserve(&m->o->runtime, &m->next.importance, columns, m->o->stages.range.params.peaks,
                                         error)
               : QOBS_OK;
}

static void merge_importance(struct merge *m)
{
    struct importance *to = &m->o->importance;
    for (size_t i = 0; i < m->count; i++) {
        const struct importance *from = &m->others[i]->importance;
        to->tokens += from->tokens;
        for (int64_t j = 0; j < from->columns; j++)
            to->sum[j] += from->sum[j];
        for (int64_t j = 0; from->peak && j < from->columns; j++)
            to->peak[j] = isnan(to->peak[j]) || from->peak[j] <= to->peak[j] ? to->peak[j] : from->peak[j];
    }
}

const struct part qobs_part_importance = {.exists = searches,
                                          .copies = 1,
                                          .reserve = reserve_importance,
                                          .release = release_importance,
                                          .prepare_batch = prepare_batch_importance,
                                          .adopt = adopt_importance,
                                          .code = code_importance,
                                          .prepare_merge = prepare_importance,
                                          .merge = merge_importance};

/* ---- Record of the last search ----------------------------------------------------------------------------------- */

static int reserve_record(qobs_observer *o, const struct part_size *p, qobs_error *error)
{
    return qobs_range_has_record(p->stages->range.ops)
               ? qobs_search_record_reserve(&o->runtime, &o->state.record, p->layout->qparams, error)
               : QOBS_OK;
}

static void release_record(const struct runtime *runtime, struct state *state)
{
    qobs_search_record_release(runtime, &state->record);
}

static void adopt_record(qobs_observer *o, qobs_observer *next)
{
    if (next->state.record.qparams > 0)
        SWAP(struct search_record, o->state.record, next->state.record);
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
    QOBS_CODE_MEMBER(codec, int32_t, r->steps);
    QOBS_CODE_MEMBER(codec, int32_t, r->stop_step);
    const uint32_t weighted = qobs_code_u32(codec, r->weighted);
    QOBS_CODE_MEMBER(codec, enum importance_fault, r->fault);
    if (codec->loading && !record_is_possible(o, r, weighted))
        return qobs_damaged(error, "its search is impossible");
    if (codec->loading)
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

static int copy_record(const struct runtime *runtime, struct search_record *to, const struct search_record *from,
                       qobs_error *error)
{
    RETURN_IF_FAILED(qobs_search_record_reserve(runtime, to, from->qparams, error));
    to->steps = from->steps;
    to->stop_step = from->stop_step;
    to->weighted = from->weighted;
    to->fault = from->fault;
    memcpy(to->best_step, from->best_step, from->qparams * sizeof *from->best_step);
    memcpy(to->error, from->error, from->qparams * sizeof *from->error);
    memcpy(to->error_before, from->error_before, from->qparams * sizeof *from->error_before);
    return QOBS_OK;
}

/* A choice made on one batch stays the observer's own, or is that of the first observer that has one. */
static int prepare_record(struct merge *m, qobs_error *error)
{
    return m->model && m->o->stages.range.ops->state && m->state->record.qparams == 0
               ? copy_record(&m->o->runtime, &m->state->record, &m->model->state.record, error)
               : QOBS_OK;
}

const struct part qobs_part_record = {.exists = searches,
                                      .copies = 2,
                                      .reserve = reserve_record,
                                      .release_state = release_record,
                                      .adopt = adopt_record,
                                      .code = code_record,
                                      .prepare_merge = prepare_record};

/* ---- Gram -------------------------------------------------------------------------------------------------------- */

static int reserve_gram(qobs_observer *o, const struct part_size *p, qobs_error *error)
{
    o->gram = qobs_gram_for(p->stages, p->columns);
    return qobs_gram_reserve(&o->runtime, &o->gram, error);
}

static void release_gram(qobs_observer *o) { qobs_gram_release(&o->runtime, &o->gram); }

static void adopt_gram(qobs_observer *o, qobs_observer *next)
{
    if (next->gram.sum)
        SWAP(struct gram, o->gram, next->gram);
}

/* Sums are a number or NaN, and symmetric. */
static bool gram_is_possible(const struct gram *g)
{
    bool possible = true;
    for (int64_t i = 0; i < qobs_gram_blocks(g); i++) {
        const struct gram_block block = qobs_gram_block(g, i);
        for (int64_t j = 0; j < g->block; j++)
            for (int64_t k = 0; k <= j; k++) {
                const double a = block.sum[j * g->block + k], b = block.sum[k * g->block + j];
                const bool inside = j < block.width && k < block.width;
                possible &= (a == b || (isnan(a) && isnan(b))) && (inside || a == 0);
            }
    }
    return possible;
}

static int code_gram(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct gram *g = &o->gram;
    uint64_t tokens = qobs_code_u64(codec, g->sum ? g->tokens : 0);
    if (codec->loading && tokens > 0) {
        struct gram made = {0};
        if (tokens != o->importance.tokens || o->importance.columns <= 0)
            return qobs_damaged(error, "its Hessian is not of its importance");
        made = qobs_gram_for(&o->stages, o->importance.columns);
        if (qobs_gram_size(&made) == 0 || !qobs_codec_holds(codec, qobs_gram_size(&made), 1))
            return qobs_damaged(error, "its Hessian is incomplete");
        RETURN_IF_FAILED(qobs_gram_reserve(&o->runtime, &made, error));
        made.tokens = tokens;
        *g = made;
    } else if (codec->loading && o->importance.tokens > 0) {
        return qobs_damaged(error, "its Hessian is missing");
    }
    if (tokens == 0)
        return QOBS_OK;
    qobs_code_elements(codec, g->sum, qobs_gram_size(g) / sizeof *g->sum, sizeof *g->sum);
    return codec->loading && !gram_is_possible(g) ? qobs_damaged(error, "its Hessian is impossible") : QOBS_OK;
}

static int prepare_gram(struct merge *m, qobs_error *error)
{
    const int64_t own = m->o->importance.columns, columns = own > 0 ? own : m->next.importance.columns;
    if (columns == 0 || m->o->gram.sum)
        return QOBS_OK;
    m->next.gram = qobs_gram_for(&m->o->stages, columns);
    return qobs_gram_reserve(&m->o->runtime, &m->next.gram, error);
}

static void merge_gram(struct merge *m)
{
    for (size_t i = 0; m->o->gram.sum && i < m->count; i++)
        qobs_gram_merge(&m->o->gram, &m->others[i]->gram);
}

const struct part qobs_part_gram = {.exists = qobs_needs_gram,
                                    .copies = 1,
                                    .reserve = reserve_gram,
                                    .release = release_gram,
                                    .adopt = adopt_gram,
                                    .code = code_gram,
                                    .prepare_merge = prepare_gram,
                                    .merge = merge_gram};

/* ---- Optimal scales ---------------------------------------------------------------------------------------------- */

static bool is_optimal(const struct stages *stages) { return stages->range.ops->optimal; }

static int reserve_optimal(qobs_observer *o, const struct part_size *p, qobs_error *error)
{
    const size_t n = p->layout->qparams; /* a row has at least one */
    return qobs_optimal_result_reserve(&o->runtime, &o->state.optimal, n, n, error);
}

static void release_optimal(const struct runtime *runtime, struct state *state)
{
    qobs_optimal_result_release(runtime, &state->optimal);
}

static void adopt_optimal(qobs_observer *o, qobs_observer *next)
{
    if (next->state.optimal.qparams > 0)
        SWAP(struct optimal_result, o->state.optimal, next->state.optimal);
}

static bool zero_point_is_possible(const struct formula_params *p, int32_t zero_point)
{
    return p->mapping == MAPPING_SYMMETRIC ? zero_point == 0 : zero_point >= p->quant_min && zero_point <= p->quant_max;
}

static int code_optimal(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct optimal_result *r = &o->state.optimal;
    const uint64_t qparams = qobs_code_u64(codec, r->qparams), rows = qobs_code_u64(codec, r->rows);
    if (codec->loading) {
        const bool observed = !qobs_state_is_empty(&o->state);
        if (qparams != (observed ? o->state.layout.qparams : 0) || rows > qparams)
            return qobs_damaged(error, "its search is not of its ranges");
        if (!qobs_codec_holds(codec, qparams, 3 * sizeof(double) + 2 * sizeof(float)))
            return qobs_damaged(error, "its search is incomplete");
        if (qparams > 0)
            RETURN_IF_FAILED(qobs_optimal_result_reserve(&o->runtime, r, (size_t)qparams, (size_t)rows, error));
    }
    if (qparams == 0)
        return QOBS_OK;
    const uint32_t weighted = qobs_code_u32(codec, r->weighted), fused = qobs_code_u32(codec, r->fused);
    QOBS_CODE_MEMBER(codec, enum importance_fault, r->fault);
    qobs_code_elements(codec, &r->amax, 1, sizeof r->amax);
    qobs_code_elements(codec, r->error, r->qparams, sizeof *r->error);
    qobs_code_elements(codec, r->minmax_error, r->qparams, sizeof *r->minmax_error);
    qobs_code_elements(codec, r->energy, r->qparams, sizeof *r->energy);
    qobs_code_elements(codec, r->row_error, r->rows, sizeof *r->row_error);
    qobs_code_elements(codec, r->start_row_error, r->rows, sizeof *r->start_row_error);
    qobs_code_elements(codec, r->scale, r->qparams, sizeof *r->scale);
    qobs_code_elements(codec, r->zero_point, r->qparams, sizeof *r->zero_point);
    if (!codec->loading)
        return QOBS_OK;
    if (codec->ends_early)
        return qobs_damaged(error, "its search is incomplete");
    if (weighted > 1 || fused > 1 || (fused && o->stages.traits.global == GLOBAL_NONE) ||
        (uint32_t)r->fault >= IMPORTANCE_FAULTS)
        return qobs_damaged(error, "its search is impossible");
    for (size_t q = 0; q < r->qparams; q++)
        if (!zero_point_is_possible(&o->stages.formula.params, r->zero_point[q]))
            return qobs_damaged(error, "a zero point it chose is impossible");
    r->weighted = weighted;
    o->fused = r->fused = fused;
    o->fused_amax = fused ? r->amax : 0;
    return qobs_optimal_is_stale(o) ? qobs_damaged(error, "its search is not of its ranges") : QOBS_OK;
}

static int prepare_optimal(struct merge *m, qobs_error *error)
{
    return m->model && m->state->optimal.qparams == 0
               ? qobs_optimal_result_copy(&m->o->runtime, &m->state->optimal, &m->model->state.optimal, error)
               : QOBS_OK;
}

const struct part qobs_part_optimal = {.exists = is_optimal,
                                       .copies = 2,
                                       .reserve = reserve_optimal,
                                       .release_state = release_optimal,
                                       .adopt = adopt_optimal,
                                       .code = code_optimal,
                                       .prepare_merge = prepare_optimal};

/* ---- Sums of errors ---------------------------------------------------------------------------------------------- */

static bool has_sums(const struct stages *stages) { return qobs_range_has_sums(stages->range.ops); }

static int reserve_sums(qobs_observer *o, const struct part_size *p, qobs_error *error)
{
    return qobs_error_sums_reserve(&o->runtime, &o->state.sums,
                                   p->layout->qparams * qobs_range_steps(&p->stages->range), error);
}

static void release_sums(const struct runtime *runtime, struct state *state)
{
    qobs_release(runtime, state->sums.sum, state->sums.count * sizeof *state->sums.sum);
    state->sums = (struct error_sums){0};
}

static int code_sums(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct error_sums *sums = &o->state.sums;
    if (codec->loading && !qobs_state_is_empty(&o->state)) {
        const size_t count = o->state.layout.qparams * (size_t)qobs_range_steps(&o->stages.range);
        if (!qobs_codec_holds(codec, count, sizeof *sums->sum))
            return qobs_damaged(error, "its errors are incomplete");
        RETURN_IF_FAILED(qobs_error_sums_reserve(&o->runtime, sums, count, error));
    }
    qobs_code_elements(codec, sums->sum, sums->count, sizeof *sums->sum);
    return QOBS_OK;
}

/* Errors that are added must be of the same amax, and all weighted or none. */
static int prepare_sums(struct merge *m, qobs_error *error)
{
    if (!m->model)
        return QOBS_OK;
    const struct state *model = &m->model->state;
    for (size_t i = 0; i < m->count; i++) {
        const struct state *s = &m->others[i]->state;
        if (qobs_state_is_empty(s))
            continue;
        if (memcmp(s->ranges.max, model->ranges.max, model->layout.qparams * sizeof(float)) != 0)
            return qobs_invalid(
                error, "others[%zu]: its errors are of multiples of another amax; set the same amax in all observers",
                i);
        if (s->record.weighted != model->record.weighted)
            return qobs_invalid(error, "others[%zu]: its errors are %s by a Hessian, those before it are%s", i,
                                s->record.weighted ? "weighted" : "not weighted", model->record.weighted ? "" : " not");
    }
    return m->state->sums.sum ? QOBS_OK
                              : qobs_error_sums_reserve(&m->o->runtime, &m->state->sums, model->sums.count, error);
}

static void merge_sums(struct merge *m)
{
    struct error_sums *to = &m->o->state.sums;
    if (m->model && !m->own)
        m->o->reference.dtype = m->model->reference.dtype;
    for (size_t i = 0; to->sum && i < m->count; i++)
        for (size_t k = 0; k < m->others[i]->state.sums.count; k++)
            to->sum[k] += m->others[i]->state.sums.sum[k];
}

const struct part qobs_part_sums = {.exists = has_sums,
                                    .copies = 1,
                                    .reserve = reserve_sums,
                                    .release_state = release_sums,
                                    .code = code_sums,
                                    .prepare_merge = prepare_sums,
                                    .merge = merge_sums};

/* ---- The reference amax and error weights of Model-Optimizer's searches, set before the first batch ---------------
 */

static int reserve_floats(qobs_observer *o, uint64_t n, float **floats, size_t *count, qobs_error *error)
{
    *floats = qobs_allocate_state(&o->runtime, (size_t)n * sizeof **floats);
    RETURN_IF_FAILED(qobs_require_memory(*floats, "observer", (size_t)n * sizeof **floats, error));
    *count = (size_t)n;
    return QOBS_OK;
}

/* Makes a view of the tensor. The observer must accept it and must not have observed a batch. */
static int check(const qobs_observer *o, const qobs_tensor *tensor, const char *name, struct view *view,
                 qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    if (!qobs_range_has_reference(o->stages.range.ops))
        return qobs_invalid(error, "observer: %s takes no %s", o->config.preset->name, name);
    if (o->counts.batches > 0)
        return qobs_invalid(error, "observer: has observed %llu batches, %s comes before the first",
                            (unsigned long long)o->counts.batches, name);
    RETURN_IF_FAILED(qobs_view_of_tensor(view, tensor, name, error));
    enum kernel_dtype unused;
    if (!qobs_kernel_dtype_of(view->dtype, &unused) || view->elements == 0)
        return qobs_invalid(error, "%s: has %lld elements of %s, allowed are F32, BF16, F16, F64 and at least 1", name,
                            (long long)view->elements, qobs_dtype_name(view->dtype));
    return QOBS_OK;
}

/* Writes the elements in C order. */
static int convert(const struct view *view, const char *name, float *numbers, qobs_error *error)
{
    struct loops loops;
    qobs_loops_of_view(view, view->ndim, &loops);
    for (int64_t i = 0; i < view->elements; i++) {
        numbers[i] = (float)qobs_element(qobs_loops_at(&loops, i).in, view->dtype);
        if (!(numbers[i] >= 0) || isinf(numbers[i]))
            return qobs_invalid(error, "%s: element %lld is %g, allowed are finite numbers from 0", name, (long long)i,
                                (double)numbers[i]);
    }
    return QOBS_OK;
}

/* Replaces the array at *to. */
static int replace(qobs_observer *o, const struct view *view, const char *name, float **to, size_t *count,
                   qobs_error *error)
{
    float *numbers = NULL;
    size_t n = 0;
    RETURN_IF_FAILED(reserve_floats(o, (uint64_t)view->elements, &numbers, &n, error));
    FP_SCOPE;
    const int status = convert(view, name, numbers, error);
    qobs_release(&o->runtime, status == QOBS_OK ? *to : numbers, (status == QOBS_OK ? *count : n) * sizeof **to);
    RETURN_IF_FAILED(status);
    *to = numbers;
    *count = n;
    return QOBS_OK;
}

int qobs_observer_set_reference_amax(qobs_observer *o, const qobs_tensor *amax, qobs_error *error)
{
    struct view view;
    RETURN_IF_FAILED(check(o, amax, "amax", &view, error));
    if (o->stages.range.ops->state->reference == REFERENCE_OF_TENSOR && view.elements != 1)
        return qobs_invalid(error, "amax: has %lld elements, %s takes one", (long long)view.elements,
                            o->config.preset->name);
    RETURN_IF_FAILED(replace(o, &view, "amax", &o->reference.amax, &o->reference.count, error));
    o->reference.dtype = view.dtype;
    o->reference.shape = (struct shape){.ndim = view.ndim};
    memcpy(o->reference.shape.extent, view.shape, sizeof o->reference.shape.extent);
    return qobs_succeed(error);
}

int qobs_observer_set_error_weights(qobs_observer *o, const qobs_tensor *weight, qobs_error *error)
{
    struct view view;
    RETURN_IF_FAILED(check(o, weight, "weight", &view, error));
    if (o->stages.range.params.hessian)
        return qobs_invalid(error, "observer: its errors are weighted by a Hessian of hessian_block_size=%lld",
                            (long long)o->stages.range.params.hessian_block);
    if (view.ndim != 1)
        return qobs_invalid(error, "weight: has %d dimensions, must have 1", view.ndim);
    RETURN_IF_FAILED(replace(o, &view, "weight", &o->reference.weight, &o->reference.weights, error));
    return qobs_succeed(error);
}

static bool has_reference(const struct stages *stages) { return qobs_range_has_reference(stages->range.ops); }

/* One replaces another that is still there. */
static int reserve_reference(qobs_observer *o, const struct part_size *p, qobs_error *error)
{
    struct search_reference *r = &o->reference;
    RETURN_IF_FAILED(reserve_floats(o, p->layout->qparams, &r->amax, &r->count, error));
    return reserve_floats(o, (uint64_t)p->columns, &r->weight, &r->weights, error);
}

static void release_reference(qobs_observer *o)
{
    struct search_reference *r = &o->reference;
    qobs_release(&o->runtime, r->amax, r->count * sizeof *r->amax);
    qobs_release(&o->runtime, r->weight, r->weights * sizeof *r->weight);
    *r = (struct search_reference){0};
}

static int code_floats(struct codec *codec, qobs_observer *o, uint64_t n, float **floats, size_t *count,
                       qobs_error *error)
{
    if (n == 0)
        return QOBS_OK;
    if (codec->loading) {
        if (!qobs_codec_holds(codec, n, sizeof **floats))
            return qobs_damaged(error, "its reference amax or error weights are incomplete");
        RETURN_IF_FAILED(reserve_floats(o, n, floats, count, error));
    }
    qobs_code_elements(codec, *floats, (size_t)n, sizeof **floats);
    for (size_t i = 0; i < *count; i++)
        if (!((*floats)[i] >= 0) || isinf((*floats)[i]))
            return qobs_damaged(error, "its reference amax or error weights are impossible");
    return QOBS_OK;
}

static int code_reference(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct search_reference *r = &o->reference;
    QOBS_CODE_MEMBER(codec, qobs_dtype, r->dtype);
    const uint64_t n = qobs_code_u64(codec, r->count);
    if (codec->loading && (r->dtype > 0 ? !qobs_is_observable(r->dtype) : n > 0))
        return qobs_damaged(error, "the dtype of its reference amax is impossible");
    if (n > 0 && qobs_code_shape(codec, &r->shape) != n)
        return qobs_damaged(error, "the shape of its reference amax is impossible");
    RETURN_IF_FAILED(code_floats(codec, o, n, &r->amax, &r->count, error));
    return code_floats(codec, o, qobs_code_u64(codec, r->weights), &r->weight, &r->weights, error);
}

const struct part qobs_part_reference = {.exists = has_reference,
                                         .copies = 2,
                                         .reserve = reserve_reference,
                                         .release = release_reference,
                                         .code = code_reference};
