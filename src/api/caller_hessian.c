/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Hessians of the caller: qobs_round_codes quantizes to the nearest codes and starts the descent from them, and an
 * observer weighs errors by one in place of activations. */
#include "api/caller_hessian.h"

#include "base/fpenv.h"
#include "base/struct_size.h"
#include "config/settings.h"
#include "kernels/dispatch.h"
#include "observer/observer.h"
#include "plan/block_reader.h"
#include "plan/make_plan.h"
#include "quantize/row_quantizer.h"

/* ---- Blocks of a Hessian ----------------------------------------------------------------------------------------- */

/* Makes the view of square blocks. */
static int open_blocks(struct view *h, const qobs_tensor *hessian, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_view_of_tensor(h, hessian, "hessian", error));
    if (h->dtype != QOBS_F32 && h->dtype != QOBS_F64)
        return qobs_invalid(error, "hessian: dtype is %s, allowed are F32 and F64", qobs_dtype_name(h->dtype));
    if (h->ndim != 3 || h->elements == 0)
        return qobs_invalid(error, "hessian: has %d dimensions and %lld elements, allowed are 3 and at least 1",
                            h->ndim, (long long)h->elements);
    if (h->shape[1] != h->shape[2])
        return qobs_invalid(error, "hessian: has blocks of %lld rows and %lld columns, allowed are squares",
                            (long long)h->shape[1], (long long)h->shape[2]);
    return QOBS_OK;
}

/* Reads columns [column, column + n) of a row, and checks them. */
static int check_row(const struct view *h, int64_t index, int64_t row, int64_t column, int64_t n, double *entries,
                     qobs_error *error)
{
    qobs_hessian_entries(h, index, row, column, n, entries);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(entries[i]) || (column + i == row && entries[i] < 0))
            return qobs_invalid(error, "hessian: [%lld][%lld][%lld] is %g, allowed are finite numbers%s",
                                (long long)index, (long long)row, (long long)(column + i), entries[i],
                                column + i == row ? " from 0 on the diagonal" : "");
    return QOBS_OK;
}

enum { SQUARE = 32 };

/* Checks the first `width` rows and columns of a block; *symmetric becomes false if two entries differ. In squares,
 * because the lines of a column would push each other out of a cache. */
static int check_block(const struct view *h, int64_t index, int64_t width, bool *symmetric, qobs_error *error)
{
    double upper[SQUARE][SQUARE], lower[SQUARE][SQUARE];
    for (int64_t row = 0; row < width; row += SQUARE)
        for (int64_t column = row; column < width; column += SQUARE) {
            const int64_t m = width - row < SQUARE ? width - row : SQUARE;
            const int64_t n = width - column < SQUARE ? width - column : SQUARE;
            for (int64_t i = 0; i < m; i++)
                RETURN_IF_FAILED(check_row(h, index, row + i, column, n, upper[i], error));
            for (int64_t j = 0; j < n; j++)
                RETURN_IF_FAILED(check_row(h, index, column + j, row, m, lower[j], error));
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++)
                    *symmetric &= upper[i][j] == lower[j][i];
        }
    return QOBS_OK;
}

/* Checks the entries that belong to columns of the weight. */
static int check_blocks(const struct view *h, const struct gram *gram, bool *symmetric, qobs_error *error)
{
    int64_t width;
    *symmetric = true;
    for (int64_t i = 0; i < h->shape[0]; i++) {
        qobs_gram_start(gram, i, &width);
        RETURN_IF_FAILED(check_block(h, i, width, symmetric, error));
    }
    return QOBS_OK;
}

/* ---- Rounding ---------------------------------------------------------------------------------------------------- */

int qobs_check_round(int passes, const qobs_round_report *report, qobs_error *error)
{
    enum { MOST_PASSES = 100 };
    if (passes < 0 || passes > MOST_PASSES)
        return qobs_invalid(error, "passes: is %d, allowed are 0 to %d", passes, MOST_PASSES);
    return report ? out_check("report", report, SIZE_THROUGH(qobs_round_report, passes), error) : QOBS_OK;
}

/* The share that products of two columns lose: they are divided by 1 + weight * sqrt(columns / tokens). One token is
 * what a Hessian of the caller has (qobs_observer_set_hessian): how many there were is not known. */
static double shrinkage_of(int64_t columns, int64_t tokens, double weight)
{
    const double few = tokens > 1 ? weight * sqrt((double)columns / (double)tokens) : 0;
    return few / (1 + few);
}

int qobs_open_hessian(struct code_descent *c, const struct caller_hessian *a, int64_t columns, int64_t group,
                      struct view *h, qobs_error *error)
{
    const int64_t count = a->count;
    if (count < 0)
        return qobs_invalid(error, "hessian_count: is %lld, allowed are numbers from 0", (long long)count);
    RETURN_IF_FAILED(open_blocks(h, a->sum, error));
    c->gram = qobs_gram_of(columns, h->shape[1], group > 0 ? group : h->shape[1]);
    const int64_t blocks = qobs_gram_blocks(&c->gram);
    if (c->gram.block != h->shape[1] || blocks != h->shape[0])
        return qobs_invalid(error,
                            "hessian: has %lld blocks of %lld columns, %lld columns in groups of %lld have %lld "
                            "blocks of %lld",
                            (long long)h->shape[0], (long long)h->shape[1], (long long)columns,
                            (long long)c->gram.period, (long long)blocks, (long long)c->gram.block);
    c->hessian = h;
    c->tokens = count > 0 ? (double)count : 1;
    c->shrinkage = shrinkage_of(c->gram.block, count, a->few);
    return check_blocks(h, &c->gram, &c->symmetric, error);
}

/* Groups are runs of neighbouring columns of a row. */
static int open_rows(struct code_descent *c, const qobs_config *config, const qobs_plan *plan, qobs_error *error)
{
    if (plan->value.ndim == 0)
        return qobs_invalid(error, "value: has no dimension, columns are needed");
    qobs_rows_of_view(&plan->value, c->kernels, &c->rows);
    c->group = qobs_elements_most(plan);
    c->groups = (c->rows.columns + c->group - 1) / c->group;
    if (!plan->order && plan->qparams == c->rows.count * c->groups)
        return QOBS_OK;
    return qobs_invalid(error, "config: strategy is %s, codes are rounded with channel, group and tensor_group",
                        qobs_word_text(qobs_strategies, qobs_config_strategy(config)));
}

/* Scales as they multiply quantized numbers, and zero points. */
static void read_qparams(const struct code_descent *c, const qobs_round_args *a, float *scale, float *zero_point)
{
    const int64_t n = c->rows.count * c->groups;
    for (int64_t i = 0; i < n; i++) {
        const float s = (float)qobs_qparam_at(a->scale->data, a->scale->dtype, i);
        scale[i] = a->global_scale ? s / *a->global_scale : s;
        zero_point[i] = a->zero_point ? (float)qobs_qparam_at(a->zero_point->data, a->zero_point->dtype, i) : 0;
    }
}

static void fill_numbers(struct code_descent *c, float number[256])
{
    for (int code = 0; code < 256; code++) {
        const float x = c->format ? qobs_format_decode(c->format, (uint32_t)code) : (float)(signed char)code;
        number[code] = isfinite(x) ? x : 0; /* NaN is of NaN, which keeps its code */
    }
    c->number_of_code = number;
}

static int descend(struct code_descent *c, const qobs_round_args *a, struct code_descent_result *result,
                   qobs_error *error)
{
    float number[256];
    const size_t count = (size_t)(c->rows.count * c->groups), size = 2 * count * sizeof(float);
    float *const qparams = qobs_allocate(c->runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(qparams, "scale", size, error));
    read_qparams(c, a, qparams, qparams + count);
    c->scale = qparams;
    c->zero_point = qparams + count;
    fill_numbers(c, number);
    const int status = qobs_descend_codes(c, result, error);
    qobs_release(c->runtime, qparams, size);
    return status;
}

/* Rounds the elements of `plan`, of which there are some. */
static int round_codes(const qobs_round_args *a, const struct quantize_rule *rule, const struct runtime *runtime,
                       const qobs_plan *plan, struct code_descent_result *result, qobs_error *error)
{
    const qobs_quantize_args nearest = {.struct_size = sizeof nearest,
                                        .config = a->config,
                                        .format = a->format,
                                        .value = a->value,
                                        .scale = a->scale,
                                        .zero_point = a->zero_point,
                                        .global_scale = a->global_scale,
                                        .codes = a->codes,
                                        .codes_size = a->codes_size,
                                        .runtime = a->runtime};
    struct range_rule range;
    qobs_resolve_range(a->config, &range);
    const struct optimal_params own = range.ops->optimal ? range.params.optimal : (struct optimal_params){0};
    struct code_descent c = {.runtime = runtime,
                             .kernels = qobs_kernels_active(),
                             .passes = a->passes > 0             ? a->passes
                                       : own.rounding_passes > 0 ? own.rounding_passes
                                                                 : ROUND_PASSES,
                             .dampening = own.dampening,
                             .codes = a->codes};
    const struct quantizer *const q = &rule->quantizer;
    struct view h;
    RETURN_IF_FAILED(open_rows(&c, a->config, plan, error));
    const struct caller_hessian hessian = {a->hessian, a->hessian_count, FEW_BESIDE_OWN_SCALES};
    RETURN_IF_FAILED(qobs_open_hessian(&c, &hessian, c.rows.columns, c.group, &h, error));
    RETURN_IF_FAILED(qobs_quantize(&nearest, error));
    c.grid = (struct code_grid){(float)q->quant_min, (float)q->quant_max, q->min_normal, q->shifter, NULL};
    c.format = rule->format;
    return descend(&c, a, result, error);
}

void qobs_put_round_report(qobs_round_report *report, const struct code_descent_result *result)
{
    qobs_round_report made;
    memset(&made, 0, sizeof made);
    made.error_before = result->sums.error_before;
    made.error = result->sums.error;
    made.squared_error = result->sums.squared_error;
    made.energy = result->sums.energy;
    made.changed = (uint64_t)result->changed;
    made.passes = result->passes;
    if (report)
        out_copy(report, &made, sizeof made);
}

int qobs_round_codes(const qobs_round_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(optimal, error);
    struct runtime runtime;
    qobs_round_args a;
    struct quantize_rule rule;
    qobs_plan plan;
    struct code_descent_result result = {0};
    RETURN_IF_FAILED(ARGS_READ(qobs_round_args, &a, args, runtime, error));
    RETURN_IF_FAILED(qobs_check_round(a.passes, a.report, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, a.runtime, error));
    RETURN_IF_FAILED(qobs_config_check(a.config, error));
    RETURN_IF_FAILED(qobs_require_scheme(a.config, error));
    RETURN_IF_FAILED(qobs_resolve_quantize(a.config, a.format, true, &rule, error));
    RETURN_IF_FAILED(qobs_plan_make(&plan, &rule.granularity, a.value, NULL, &runtime, error));
    FP_SCOPE;
    const int status = plan.value.elements > 0 ? round_codes(&a, &rule, &runtime, &plan, &result, error) : QOBS_OK;
    qobs_plan_unmake(&plan);
    RETURN_IF_FAILED(status);
    qobs_put_round_report(a.report, &result);
    return qobs_succeed(error);
}

/* ---- Errors of an observer --------------------------------------------------------------------------------------- */

/* The Hessian is kept as the Gram of one token, and its diagonal as the importance of the columns. */

static int check_observer(const qobs_observer *o, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
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
    return range->ops->state ? range->params.hessian_block : gram->block;
}

/* A gram of the Hessian's shape, without sums. */
static int gram_of(const qobs_observer *o, const struct view *h, struct gram *gram, qobs_error *error)
{
    const int64_t blocks = h->shape[0], block = h->shape[1];
    *gram = qobs_gram_for(&o->stages, blocks * block); /* fits, as the number of elements does */
    if (block_of(o, gram) != block || gram->block != block || qobs_gram_blocks(gram) != blocks)
        return qobs_invalid(
            error, "hessian: has %lld blocks of %lld columns, allowed for %lld columns are blocks of %lld",
            (long long)blocks, (long long)block, (long long)gram->columns, (long long)block_of(o, gram));
    return QOBS_OK;
}

/* e^T H e depends on the symmetric part of H alone. Halves do not overflow; equal entries keep their bits. */
static double symmetric_part(const struct view *h, int64_t i, int64_t j, int64_t k)
{
    double a, b;
    qobs_hessian_entries(h, i, j, k, 1, &a);
    qobs_hessian_entries(h, i, k, j, 1, &b);
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
                sum[j * block + k] = sum[k * block + j] = symmetric_part(h, i, j, k);
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
    bool symmetric;
    RETURN_IF_FAILED(check_observer(o, error));
    RETURN_IF_FAILED(open_blocks(&view, hessian, error));
    RETURN_IF_FAILED(gram_of(o, &view, &gram, error));
    FP_SCOPE;
    int status = check_blocks(&view, &gram, &symmetric, error);
    if (status == QOBS_OK)
        status = replace(o, &view, &gram, error);
    return qobs_finish(status, error);
}
