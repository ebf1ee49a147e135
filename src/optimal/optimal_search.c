/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "base/split.h"
#include "plan/block_reader.h"
#include "optimal/hessian_search.h"
#include "number/convert.h"
#include "stages/range_rule.h"

const struct range_ops qobs_range_mse_optimal = {.optimal =
                                                     &(const struct optimal_weights){.search = qobs_optimal_search}};
const struct range_ops qobs_range_imatrix_optimal = {
    .optimal = &(const struct optimal_weights){.importance = true, .search = qobs_optimal_search}};
const struct range_ops qobs_range_local_hessian = {
    .optimal = &(const struct optimal_weights){.importance = true, .hessian = true, .search = qobs_optimal_search}};

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static size_t size_of(size_t qparams, size_t rows)
{
    return qparams * (3 * sizeof(double) + sizeof(float) + sizeof(int32_t)) + rows * 2 * sizeof(double);
}

int qobs_optimal_result_reserve(const struct runtime *runtime, struct optimal_result *result, size_t qparams,
                                size_t rows, qobs_error *error)
{
    double *const memory = qobs_allocate_state(runtime, size_of(qparams, rows));
    RETURN_IF_FAILED(qobs_require_memory(memory, "search", size_of(qparams, rows), error));
    memset(memory, 0, size_of(qparams, rows));
    double *const after = memory + 3 * qparams + 2 * rows;
    *result = (struct optimal_result){.qparams = qparams,
                                      .error = memory,
                                      .minmax_error = memory + qparams,
                                      .energy = memory + 2 * qparams,
                                      .rows = rows,
                                      .row_error = memory + 3 * qparams,
                                      .start_row_error = memory + 3 * qparams + rows,
                                      .scale = (float *)after,
                                      .zero_point = (int32_t *)after + qparams};
    return QOBS_OK;
}

int qobs_optimal_result_copy(const struct runtime *runtime, struct optimal_result *to,
                             const struct optimal_result *from, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_optimal_result_reserve(runtime, to, from->qparams, from->rows, error));
    memcpy(to->error, from->error, size_of(from->qparams, from->rows));
    to->amax = from->amax;
    to->fused = from->fused;
    to->weighted = from->weighted;
    to->fault = from->fault;
    return QOBS_OK;
}

void qobs_optimal_result_release(const struct runtime *runtime, struct optimal_result *result)
{
    qobs_release(runtime, result->error, size_of(result->qparams, result->rows));
    *result = (struct optimal_result){0};
}

void qobs_optimal_result_write(const struct optimal_result *r, qobs_dtype dtype, void *scale,
                               qobs_dtype zero_point_dtype, void *zero_point)
{
    const size_t size = qobs_dtype_size(dtype);
    for (size_t q = 0; scale && q < r->qparams; q++)
        qobs_put_element((unsigned char *)scale + q * size, dtype, (double)r->scale[q]);
    if (zero_point && zero_point_dtype == QOBS_I32)
        memcpy(zero_point, r->zero_point, r->qparams * sizeof *r->zero_point);
    for (size_t q = 0; zero_point && zero_point_dtype != QOBS_I32 && q < r->qparams; q++)
        ((int8_t *)zero_point)[q] = (int8_t)r->zero_point[q];
}

/* ---- Importance -------------------------------------------------------------------------------------------------- */

/* The mean square of each column, and the index of each column, which the elements of a group are read with. */
struct columns {
    void *memory;       /* of the importance */
    double *importance; /* aligned to 64 bytes */
    float *index;       /* exact: the plan has fewer columns than 2^24 */
    int64_t count;
};

static bool has_hessian(const struct optimal_search *s) { return s->gram && s->gram->sum; }

static enum importance_fault means_of(const struct importance *importance, double *mean)
{
    bool finite = true, negative = false, zero = true;
    for (int64_t j = 0; j < importance->columns; j++) {
        mean[j] = importance->sum[j] / (double)importance->tokens;
        finite &= isfinite(mean[j]) != 0;
        negative |= mean[j] < 0;
        zero &= mean[j] == 0;
    }
    return !finite    ? IMPORTANCE_NOT_FINITE
           : negative ? IMPORTANCE_NEGATIVE
           : zero     ? IMPORTANCE_ZERO
                      : IMPORTANCE_USABLE;
}

static size_t importance_size(const struct columns *columns)
{
    return (size_t)columns->count * sizeof *columns->importance + LAYOUT_LINE;
}

static void release_columns(const struct optimal_search *s, struct columns *columns)
{
    qobs_release(s->runtime, columns->memory, importance_size(columns));
    qobs_release(s->runtime, columns->index, (size_t)columns->count * sizeof *columns->index);
}

static int make_columns(const struct optimal_search *s, struct columns *columns, enum importance_fault *fault,
                        qobs_error *error)
{
    const struct view *v = &s->plan->value;
    *fault = IMPORTANCE_USABLE;
    if (!s->params->importance)
        return QOBS_OK;
    if (s->importance->tokens == 0) {
        *fault = IMPORTANCE_NOT_OBSERVED;
    } else if (v->ndim == 0 || v->shape[v->ndim - 1] != s->importance->columns || s->importance->columns > (1 << 24)) {
        *fault = IMPORTANCE_COLUMNS;
    } else {
        columns->count = s->importance->columns;
        columns->memory = qobs_allocate(s->runtime, importance_size(columns));
        columns->index = qobs_allocate(s->runtime, (size_t)columns->count * sizeof *columns->index);
        if (!columns->memory || !columns->index)
            return qobs_no_memory(error, "importance: no memory for %lld columns", (long long)columns->count);
        columns->importance = (double *)(void *)qobs_layout_begin(columns->memory).memory;
        for (int64_t j = 0; j < columns->count; j++)
            columns->index[j] = (float)j;
        *fault = means_of(s->importance, columns->importance);
        if (*fault == IMPORTANCE_USABLE && has_hessian(s))
            *fault = !qobs_gram_is_finite(s->gram) ? IMPORTANCE_NOT_FINITE
                     : qobs_gram_is_zero(s->gram)  ? IMPORTANCE_ZERO
                                                   : IMPORTANCE_USABLE;
    }
    if (*fault == IMPORTANCE_USABLE || !s->params->strict)
        return QOBS_OK;
    return qobs_fail(error, *fault == IMPORTANCE_NOT_OBSERVED ? QOBS_ERROR_NO_DATA : QOBS_ERROR_INVALID_ARGUMENT,
                     "importance: cannot be used, %s (strict=true)", qobs_importance_fault_text(*fault));
}

/* ---- One group --------------------------------------------------------------------------------------------------- */

/* Memory of one thread; arrays have the capacity of the longest group. */
struct group_memory {
    float *w, *index;
    double *h;
    void *scratch;
};

struct group_run {
    const struct optimal_search *search;
    const struct columns *columns;
    struct optimal_params params;
    struct element_source source;
    struct optimal_result *result;
    unsigned char *memory;
    size_t longest, each; /* elements of a group, padded; bytes of a workspace */
};

/* Places the memory of a thread; returns the bytes. */
static size_t place(const struct group_run *r, unsigned char *memory, struct group_memory *w)
{
    struct array_layout l = {memory, 0};
    w->w = qobs_layout_add(&l, r->longest * sizeof *w->w);
    w->index = qobs_layout_add(&l, r->longest * sizeof *w->index);
    w->h = qobs_layout_add(&l, r->longest * sizeof *w->h);
    w->scratch = qobs_layout_add(&l, qobs_optimal_scratch(&r->params, r->longest));
    return l.used;
}

/* True if the importance of the columns lies in memory as kernels want the weights of a group. */
static bool is_importance_in_place(const struct group_run *r, const struct qparam_block *e)
{
    return r->source.column_weight && !r->source.plan->order && e->axes == 1 && r->params.dampening == 0 &&
           e->elements % OPTIMAL_PADDING == 0 && (uintptr_t)(r->columns->importance + e->column) % LAYOUT_LINE == 0;
}

static void load(const struct group_run *r, const struct qparam_block *e, const struct group_memory *w)
{
    for (int64_t first = 0; first < e->elements; first += QOBS_SEARCH_MOST) {
        const size_t n = (size_t)(e->elements - first < QOBS_SEARCH_MOST ? e->elements - first : QOBS_SEARCH_MOST);
        qobs_block_load(&r->source, e, first, n, 1, w->w + first);
        if (r->source.column_weight && !is_importance_in_place(r, e))
            qobs_block_weights(&r->source, e, first, n, w->index + first);
    }
}

static bool is_finite(const float *w, size_t n)
{
    const uint32_t infinite = 0x7f800000;
    uint32_t all = 0; /* compilers make vectors of this */
    for (size_t i = 0; i < n; i++)
        all |= (bits_of_float(w[i]) & infinite) == infinite ? UINT32_MAX : 0;
    return all == 0;
}

static size_t padded(size_t n) { return (n + OPTIMAL_PADDING - 1) / OPTIMAL_PADDING * OPTIMAL_PADDING; }

/* The weights of a group's errors; all 1 if the importance says nothing about the elements. */
static const double *weigh(const struct group_run *r, const struct qparam_block *e, const struct group_memory *w,
                           size_t n)
{
    const double *importance = r->source.column_weight ? r->columns->importance : NULL;
    double sum = 0, seen = 0;
    if (is_importance_in_place(r, e)) {
        const double *const h = importance + e->column;
        for (size_t i = 0; i < n; i++)
            if (w->w[i] != 0 && h[i] > 0)
                return h;
        importance = NULL;
    }
    for (size_t i = 0; importance && i < n; i++) {
        w->h[i] = importance[(size_t)w->index[i]];
        sum += w->h[i];
    }
    const double added = r->params.dampening * (sum / (double)n);
    for (size_t i = 0; sum > 0 && i < n; i++) {
        w->h[i] += added;
        seen = w->w[i] != 0 && w->h[i] > seen ? w->h[i] : seen;
    }
    for (size_t i = 0; !(seen > 0) && i < n; i++)
        w->h[i] = 1;
    for (size_t i = n; i < padded(n); i++)
        w->h[i] = 0;
    return w->h;
}

static void search_one(const struct group_run *r, const struct qparam_block *e, const struct group_memory *w,
                       size_t qparam)
{
    const struct optimal_search *s = r->search;
    const size_t n = (size_t)e->elements;
    const float global_scale = s->global_scale ? *s->global_scale : 1;
    struct optimal_choice choice = {.scale = NAN, .error = NAN, .minmax_error = NAN, .energy = NAN};
    load(r, e, w);
    if (is_finite(w->w, n)) {
        const struct optimal_group group = {w->w, weigh(r, e, w, n), n, global_scale};
        qobs_optimal_group(s->kernels, &r->params, &group, w->scratch, &choice);
    }
    r->result->scale[qparam] = qobs_optimal_stored(&r->params, choice.scale, global_scale);
    r->result->zero_point[qparam] = choice.zero_point;
    r->result->error[qparam] = choice.error;
    r->result->minmax_error[qparam] = choice.minmax_error;
    r->result->energy[qparam] = choice.energy;
}

/* ---- All groups -------------------------------------------------------------------------------------------------- */

static void search_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct group_run *r = argument;
    struct group_memory w;
    struct qparam_block e;
    place(r, r->memory + (size_t)part * r->each, &w);
    qobs_optimal_prepare(&r->params, r->search->global_scale ? *r->search->global_scale : 1, r->longest, w.scratch);
    for (int64_t q = from; q < to; q++) {
        qobs_block_of_qparam(&r->source, q, &e);
        search_one(r, &e, &w, (size_t)q);
    }
}

static int search_groups(struct group_run *r, qobs_error *error)
{
    static const struct split_rule rule = {
        .min_total = 1 << 12, .parts_per_thread = 4, .max_parts = 1 << 12}; /* elements */
    const struct optimal_search *s = r->search;
    const struct split split = qobs_split(s->runtime, &rule, s->plan->qparams, s->plan->value.elements, 0);
    r->longest = padded((size_t)qobs_elements_most(s->plan));
    r->each = place(r, NULL, &(struct group_memory){0});
    const size_t size = r->each * (size_t)split.parts + LAYOUT_LINE;
    unsigned char *const memory = qobs_allocate(s->runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(memory, "search", size, error));
    r->memory = qobs_layout_begin(memory).memory;
    qobs_split_run(s->runtime, &split, search_part, r);
    qobs_release(s->runtime, memory, size);
    return QOBS_OK;
}

/* Weights are searched in float, which holds neither all F64 numbers nor the width of all ranges. */
static int check_scales(const struct optimal_search *s, const struct optimal_result *result, qobs_error *error)
{
    for (size_t q = 0; q < result->qparams && s->params->nonfinite != NONFINITE_PROPAGATE; q++)
        if (!isfinite(result->scale[q]))
            return qobs_invalid(error, "value: qparam %zu has a range that is wider than float32", q);
    return QOBS_OK;
}

int qobs_optimal_search(const struct optimal_search *s, struct optimal_result *result, qobs_error *error)
{
    struct columns columns = {0};
    struct group_run run = {.search = s, .columns = &columns, .params = s->params->optimal, .result = result};
    enum importance_fault fault = IMPORTANCE_USABLE;
    int status = make_columns(s, &columns, &fault, error);
    const bool hessian = fault == IMPORTANCE_USABLE && has_hessian(s);
    const bool rows = hessian && qobs_hessian_joins_groups(s->params, qobs_elements_most(s->plan), columns.count);
    if (status == QOBS_OK)
        status = qobs_optimal_result_reserve(s->runtime, result, (size_t)s->plan->qparams,
                                             rows ? (size_t)(s->plan->value.elements / columns.count) : 0, error);
    if (status == QOBS_OK) {
        enum kernel_dtype dtype = QOBS_KERNEL_F32;
        qobs_kernel_dtype_of(s->plan->dtype, &dtype);
        result->fault = fault;
        result->weighted = fault == IMPORTANCE_USABLE && s->params->importance;
        run.params.f16_results = s->plan->dtype == QOBS_F16 && !s->global_scale;
        if (run.params.scale_dtype == SCALE_NATIVE)
            run.params.eps = s->plan->dtype == QOBS_BF16 ? 0x1p-7f : s->plan->dtype == QOBS_F16 ? 0x1p-10f : 0x1p-23f;
        run.source = (struct element_source){.plan = s->plan,
                                             .data = s->data,
                                             .column_weight = result->weighted ? columns.index : NULL,
                                             .load = s->kernels->search_load[dtype],
                                             .finite_only = s->params->nonfinite == NONFINITE_IGNORE};
        status = hessian ? qobs_hessian_search(s, &run.params, columns.importance, result, error)
                         : search_groups(&run, error);
    }
    if (status == QOBS_OK)
        status = check_scales(s, result, error);
    release_columns(s, &columns);
    return status;
}
