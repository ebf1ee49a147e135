/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_round_codes: checks its arguments, quantizes to the nearest codes, and starts the descent from them. */
#include <math.h>

#include "base/build.h"
#include "base/fpenv.h"
#include "base/struct_size.h"
#include "config/stages.h"
#include "quantize/qparam_view.h"
#include "quantize/row_quantizer.h"
#include "kernels/dispatch.h"
#include "number/convert.h"
#include "optimal/code_descent.h"
#include "plan/block_reader.h"
#include "plan/make_plan.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"

enum { PASSES = 4, MOST_PASSES = 100 };

static int check_numbers(const qobs_round_args *a, qobs_error *error)
{
    if (a->passes < 0 || a->passes > MOST_PASSES)
        return qobs_invalid(error, "passes: is %d, allowed are 0 to %d", a->passes, MOST_PASSES);
    if (a->hessian_count < 0)
        return qobs_invalid(error, "hessian_count: is %lld, allowed are numbers from 0", (long long)a->hessian_count);
    return QOBS_OK;
}

/* ---- H ----------------------------------------------------------------------------------------------------------- */

enum { SQUARE = 32 };

/* Reads columns [column, column + n) of a row, and checks them. */
static int check_row(const struct code_descent *c, int64_t index, int64_t row, int64_t column, int64_t n,
                     double *entries, qobs_error *error)
{
    qobs_hessian_entries(c->hessian, index, row, column, n, entries);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(entries[i]) || (column + i == row && entries[i] < 0))
            return qobs_invalid(error, "hessian: [%lld][%lld][%lld] is %g, allowed are finite numbers%s",
                                (long long)index, (long long)row, (long long)(column + i), entries[i],
                                column + i == row ? " from 0 on the diagonal" : "");
    return QOBS_OK;
}

/* Checks the entries of a block that belong to columns of the weight; c->symmetric becomes false if two differ. In
 * squares, because the lines of a column would push each other out of a cache. */
static int check_block(struct code_descent *c, int64_t index, qobs_error *error)
{
    double upper[SQUARE][SQUARE], lower[SQUARE][SQUARE];
    int64_t width;
    qobs_gram_start(&c->gram, index, &width);
    for (int64_t row = 0; row < width; row += SQUARE)
        for (int64_t column = row; column < width; column += SQUARE) {
            const int64_t m = width - row < SQUARE ? width - row : SQUARE;
            const int64_t n = width - column < SQUARE ? width - column : SQUARE;
            for (int64_t i = 0; i < m; i++)
                RETURN_IF_FAILED(check_row(c, index, row + i, column, n, upper[i], error));
            for (int64_t j = 0; j < n; j++)
                RETURN_IF_FAILED(check_row(c, index, column + j, row, m, lower[j], error));
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++)
                    c->symmetric &= upper[i][j] == lower[j][i];
        }
    return QOBS_OK;
}

static int open_hessian(struct code_descent *c, const qobs_round_args *a, struct view *h, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_view_of_tensor(h, a->hessian, "hessian", error));
    if (h->dtype != QOBS_F32 && h->dtype != QOBS_F64)
        return qobs_invalid(error, "hessian: dtype is %s, allowed are F32 and F64", qobs_dtype_name(h->dtype));
    if (h->ndim != 3 || h->shape[1] != h->shape[2] || h->shape[1] < 1)
        return qobs_invalid(error, "hessian: has %d dimensions, allowed is the shape (blocks, n, n)", h->ndim);
    c->gram = qobs_gram_of(c->rows.columns, h->shape[1], c->group);
    const int64_t blocks = qobs_gram_blocks(&c->gram);
    if (c->gram.block != h->shape[1] || blocks != h->shape[0])
        return qobs_invalid(error,
                            "hessian: has %lld blocks of %lld columns, %lld columns in groups of %lld have %lld "
                            "blocks of %lld",
                            (long long)h->shape[0], (long long)h->shape[1], (long long)c->rows.columns,
                            (long long)c->group, (long long)blocks, (long long)c->gram.block);
    c->hessian = h;
    c->symmetric = true;
    c->tokens = a->hessian_count > 0 ? (double)a->hessian_count : 1;
    for (int64_t i = 0; i < blocks; i++)
        RETURN_IF_FAILED(check_block(c, i, error));
    return QOBS_OK;
}

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

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
    if (!qparams)
        return qobs_no_memory(error, "scale: no memory for %zu bytes", size);
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
    const int set = range.params.optimal.rounding_passes;
    struct code_descent c = {.runtime = runtime,
                             .kernels = qobs_kernels_active(),
                             .passes = a->passes > 0 ? a->passes
                                       : set > 0     ? set
                                                     : PASSES,
                             .codes = a->codes};
    const struct quantizer *const q = &rule->quantizer;
    struct view h;
    RETURN_IF_FAILED(open_rows(&c, a->config, plan, error));
    RETURN_IF_FAILED(open_hessian(&c, a, &h, error));
    RETURN_IF_FAILED(qobs_quantize(&nearest, error));
    c.grid = (struct code_grid){(float)q->quant_min, (float)q->quant_max, q->min_normal, q->shifter};
    c.format = rule->format;
    return descend(&c, a, result, error);
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
    RETURN_IF_FAILED(check_numbers(&a, error));
    if (a.report)
        RETURN_IF_FAILED(out_check("report", a.report, SIZE_THROUGH(qobs_round_report, passes), error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, a.runtime, error));
    RETURN_IF_FAILED(qobs_config_check(a.config, error));
    RETURN_IF_FAILED(qobs_resolve_quantize(a.config, a.format, true, &rule, error));
    RETURN_IF_FAILED(qobs_plan_make(&plan, &rule.granularity, a.value, NULL, &runtime, error));
    const fp_mode mode = fp_enter();
    const int status = plan.value.elements > 0 ? round_codes(&a, &rule, &runtime, &plan, &result, error) : QOBS_OK;
    fp_leave(mode);
    qobs_plan_unmake(&plan);
    if (status != QOBS_OK)
        return status;
    const qobs_round_report report = {.struct_size = sizeof report,
                                      .error_before = result.sums.error_before,
                                      .error = result.sums.error,
                                      .squared_error = result.sums.squared_error,
                                      .energy = result.sums.energy,
                                      .changed = (uint64_t)result.changed,
                                      .passes = result.passes};
    if (a.report)
        out_copy(a.report, &report, sizeof report);
    return qobs_succeed(error);
}
