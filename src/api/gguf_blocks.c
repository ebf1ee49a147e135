/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks of GGUF types: qobs/gguf.h. */
#include "qobs/gguf.h"

#include <stdio.h>

#include "api/caller_hessian.h"
#include "base/fpenv.h"
#include "base/split.h"
#include "base/struct_size.h"
#include "kernels/dispatch.h"
#include "optimal/block_descent.h"
#include "quantize/gguf_numbers.h"

const char *qobs_gguf_type_name(size_t index)
{
    size_t n = 0;
    while (n < index && qobs_gguf_types[n].name)
        n++;
    return qobs_gguf_types[n].name;
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static int find_type(const char *argument, const char *name, const struct gguf_type **type, qobs_error *error)
{
    char known[256] = "";
    RETURN_IF_FAILED(qobs_require(name, argument, error));
    *type = qobs_find_gguf_type(name);
    if (*type)
        return QOBS_OK;
    for (const struct gguf_type *t = qobs_gguf_types; t->name && !t->refused; t++) {
        strncat(known, *known ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, t->name, sizeof known - strlen(known) - 1);
    }
    return qobs_invalid(error, "%s: '%.60s' is no type of GGUF; known are %s", argument, name, known);
}

int qobs_gguf_describe_type(const char *name, qobs_gguf_type *type, qobs_error *error)
{
    const struct gguf_type *found;
    qobs_gguf_type filled;
    RETURN_IF_FAILED(out_check("type", type, SIZE_THROUGH(qobs_gguf_type, block_size), error));
    RETURN_IF_FAILED(find_type("name", name, &found, error));
    memset(&filled, 0, sizeof filled);
    filled.name = found->name;
    filled.number = found->number;
    filled.uses_importance = found->search[1].fit >= GGUF_FIT_AFFINE;
    filled.block_elements = found->elements;
    filled.block_size = found->bytes;
    filled.made = !found->refused;
    filled.rounds = QOBS_HAS(optimal) && filled.made && qobs_block_codes_descend(found);
    out_copy(type, &filled, sizeof filled);
    return qobs_succeed(error);
}

/* A matrix and its blocks. */
struct block_matrix {
    const struct gguf_type *type;
    int64_t rows, columns;
    size_t row_size; /* of the blocks of a row */
};

static int open_matrix(struct block_matrix *m, const char *type, int64_t rows, int64_t columns, qobs_error *error)
{
    int64_t elements, bytes;
    RETURN_IF_FAILED(find_type("type", type, &m->type, error));
    if (m->type->refused)
        return qobs_fail(error, QOBS_ERROR_UNSUPPORTED,
                         "type: %s is neither made nor read here: its grids are searched by ggml alone; Q2_K, Q3_K and "
                         "IQ4_XS are near in size",
                         m->type->name);
    if (rows < 0)
        return qobs_invalid(error, "rows: is %lld, allowed are 0 and more", (long long)rows);
    if (columns <= 0 || columns % m->type->elements != 0)
        return qobs_invalid(error, "columns: is %lld, %s needs a multiple of %d", (long long)columns, m->type->name,
                            m->type->elements);
    if (!qobs_multiply(rows, columns, &elements) || !qobs_multiply(elements, sizeof(float), &bytes))
        return qobs_invalid(error, "rows: %lld of %lld columns are too many", (long long)rows, (long long)columns);
    m->rows = rows;
    m->columns = columns;
    m->row_size = (size_t)(columns / m->type->elements) * m->type->bytes;
    return QOBS_OK;
}

/* Parts are whole groups of rows, whose moments a kernel measures together. */
enum { GROUP = 16 };
static const struct split_rule rule = {
    .min_total = 1 << 16, .min_part = 1 << 15, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS, .shrinking = true};

static void run_groups(const struct runtime *runtime, const struct block_matrix *m, split_task *task, void *argument)
{
    const struct split split = qobs_split(runtime, &rule, (m->rows + GROUP - 1) / GROUP, m->rows * m->columns, 0);
    qobs_split_run(runtime, &split, task, argument);
}

/* ---- Quantize ---------------------------------------------------------------------------------------------------- */

enum fault { NO_FAULT, NOT_FINITE, OVERFLOWS };

struct quantizing {
    struct block_matrix m;
    const struct kernel_table *kernels;
    enum kernel_dtype dtype;
    bool improves; /* search "optimal" */
    size_t element_size;
    const unsigned char *value;
    const float *importance;
    unsigned char *out;
    struct {
        enum fault fault;
        int64_t row; /* the first one of the part */
    } part[SPLIT_MAX_PARTS];
};

static bool row_overflows(const struct quantizing *q, int64_t row)
{
    const size_t bytes = q->m.type->bytes;
    const unsigned char *const blocks = q->out + (size_t)row * q->m.row_size;
    bool overflows = false;
    for (size_t at = 0; at < q->m.row_size && !overflows; at += bytes)
        overflows = qobs_gguf_overflows(q->m.type, blocks + at);
    return overflows;
}

static bool row_is_finite(const struct quantizing *q, int64_t row, int64_t rows)
{
    const size_t size = (size_t)q->m.columns * q->element_size;
    struct nonfinite_count count = {0, 0};
    float unused = 0;
    q->kernels->absmax_rows[q->dtype](q->value + (size_t)row * size, (ptrdiff_t)size, (size_t)rows,
                                      (size_t)q->m.columns, &unused, 0, &count);
    return count.nan + count.inf == 0;
}

typedef qobs_superblock_rows_fn rows_kernel;

static void call_rows(const struct quantizing *q, rows_kernel *kernel, int64_t row, int64_t rows)
{
    kernel(q->m.type, q->dtype, q->value + (size_t)(row * q->m.columns) * q->element_size, (size_t)rows,
           (size_t)q->m.columns, q->importance, q->out + (size_t)row * q->m.row_size);
}

/* Writes blocks of finite rows. Rows whose scales overflow are written all the same. */
static void quantize_rows(struct quantizing *q, int64_t part, int64_t row, int64_t rows)
{
    call_rows(q, q->kernels->superblock_rows, row, rows);
    for (int64_t r = row; r < row + rows && q->part[part].fault == NO_FAULT; r++)
        if (row_overflows(q, r)) {
            q->part[part].fault = OVERFLOWS;
            q->part[part].row = r;
        }
    if (q->improves && q->part[part].fault == NO_FAULT)
        call_rows(q, q->kernels->superblock_improve, row, rows);
}

/* Stops at rows that are not finite. */
static void quantize_groups(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct quantizing *const q = argument;
    for (int64_t group = from; group < to; group++) {
        const int64_t row = group * GROUP, left = q->m.rows - row, rows = left < GROUP ? left : GROUP;
        for (int64_t r = row; !row_is_finite(q, row, rows); r++)
            if (!row_is_finite(q, r, 1)) {
                q->part[part].fault = NOT_FINITE;
                q->part[part].row = r;
                return;
            }
        quantize_rows(q, part, row, rows);
    }
}

static int report_not_finite(const struct quantizing *q, int64_t row, qobs_dtype dtype, qobs_error *error)
{
    const unsigned char *const x = q->value + (size_t)(row * q->m.columns) * q->element_size;
    int64_t column = 0;
    while (column < q->m.columns - 1 && isfinite(qobs_element(x + (size_t)column * q->element_size, dtype)))
        column++;
    return qobs_fail(error, QOBS_ERROR_NONFINITE, "value: row %lld, column %lld is %s; blocks hold finite numbers",
                     (long long)row, (long long)column,
                     isnan(qobs_element(x + (size_t)column * q->element_size, dtype)) ? "NaN" : "infinite");
}

static int report(const struct quantizing *q, qobs_dtype dtype, qobs_error *error)
{
    for (size_t p = 0; p < SPLIT_MAX_PARTS; p++) {
        if (q->part[p].fault == NOT_FINITE)
            return report_not_finite(q, q->part[p].row, dtype, error);
        if (q->part[p].fault == OVERFLOWS)
            return qobs_fail(error, QOBS_ERROR_NONFINITE,
                             "value: row %lld is too large for %s: a scale is beyond F16; BF16 and F32 hold it",
                             (long long)q->part[p].row, q->m.type->name);
    }
    return qobs_succeed(error);
}

static int check_importance(const float *importance, int64_t columns, qobs_error *error)
{
    for (int64_t i = 0; importance && i < columns; i++)
        if (!(importance[i] >= 0) || isinf(importance[i]))
            return qobs_invalid(error, "importance: [%lld] is %g, allowed are finite numbers from 0 on", (long long)i,
                                (double)importance[i]);
    return QOBS_OK;
}

static int check_search(const char *search, bool *optimal, qobs_error *error)
{
    *optimal = search && strcmp(search, "optimal") == 0;
    if (search && !*optimal && strcmp(search, "ggml") != 0)
        return qobs_invalid(error, "search: is '%.60s', allowed are ggml and optimal", search);
    return QOBS_OK;
}

/* ---- Rounding by descent ----------------------------------------------------------------------------------------- */

/* Checks what belongs to a Hessian, and opens it. */
static int open_descent(const qobs_gguf_quantize_args *a, const struct block_matrix *m, struct block_descent *b,
                        struct view *h, qobs_error *error)
{
    b->type = m->type;
    b->common.passes = a->passes > 0 ? a->passes : ROUND_PASSES;
    RETURN_IF_FAILED(qobs_check_round(a->passes, a->report, error));
    if (!a->hessian)
        return QOBS_OK;
    if (!QOBS_HAS(optimal) || !qobs_block_codes_descend(m->type))
        return qobs_fail(error, QOBS_ERROR_UNSUPPORTED, "hessian: %s",
                         QOBS_HAS(optimal) ? "codes of this type are not rounded by descent; Q4_K has such codes"
                                           : "this build has no optimal; -Dfeatures=optimal brings it");
    const struct caller_hessian hessian = {a->hessian, a->hessian_count, FEW_BESIDE_GGML_SCALES};
    return qobs_open_hessian(&b->common, &hessian, m->columns, 0, h, error);
}

static int descend(const qobs_gguf_quantize_args *a, const struct runtime *runtime, const struct block_descent *opened,
                   qobs_error *error)
{
    const int64_t size = (int64_t)qobs_dtype_size(a->dtype);
    const struct view value = {.data = a->value,
                               .dtype = a->dtype,
                               .ndim = 2,
                               .shape = {a->rows, a->columns},
                               .strides = {a->columns * size, size},
                               .elements = a->rows * a->columns};
    struct code_descent_result result;
    struct block_descent b = *opened;
    b.value = &value;
    b.blocks = a->out;
    b.common.runtime = runtime;
    b.common.kernels = qobs_kernels_active();
    FP_SCOPE;
    const int status = qobs_descend_blocks(&b, &result, error);
    RETURN_IF_FAILED(status);
    qobs_put_round_report(a->report, &result);
    return qobs_succeed(error);
}

int qobs_gguf_quantize(const qobs_gguf_quantize_args *args, qobs_error *error)
{
    qobs_gguf_quantize_args a;
    struct quantizing q;
    struct runtime runtime;
    struct block_descent b = {.type = NULL};
    struct view h;
    RETURN_IF_LEFT_OUT(searches, error);
    RETURN_IF_FAILED(ARGS_READ(qobs_gguf_quantize_args, &a, args, runtime, error));
    memset(&q, 0, sizeof q);
    RETURN_IF_FAILED(open_matrix(&q.m, a.type, a.rows, a.columns, error));
    if (!qobs_kernel_dtype_of(a.dtype, &q.dtype) || q.dtype == QOBS_KERNEL_F64)
        return qobs_invalid(error, "dtype: is %s, allowed are F32, BF16 and F16", qobs_dtype_name(a.dtype));
    RETURN_IF_FAILED(check_search(a.search, &q.improves, error));
    RETURN_IF_FAILED(array_check("out", a.out, a.out_size, (size_t)a.rows * q.m.row_size, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, a.runtime, error));
    RETURN_IF_FAILED(open_descent(&a, &q.m, &b, &h, error));
    if (a.rows == 0)
        return qobs_succeed(error);
    RETURN_IF_FAILED(qobs_require(a.value, "value", error));
    RETURN_IF_FAILED(check_importance(a.importance, a.columns, error));
    q.kernels = qobs_kernels_active();
    q.element_size = qobs_dtype_size(a.dtype);
    q.value = a.value;
    q.importance = a.importance;
    q.out = a.out;
    run_groups(&runtime, &q.m, quantize_groups, &q);
    RETURN_IF_FAILED(report(&q, a.dtype, error));
    return QOBS_HAS(optimal) && a.hessian ? descend(&a, &runtime, &b, error) : QOBS_OK;
}

/* ---- Dequantize -------------------------------------------------------------------------------------------------- */

struct dequantizing {
    struct block_matrix m;
    const unsigned char *blocks;
    float *out;
};

static void dequantize_groups(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct dequantizing *const d = argument;
    const struct gguf_type *const type = d->m.type;
    const int64_t end = to * GROUP < d->m.rows ? to * GROUP : d->m.rows, each = d->m.columns / type->elements;
    (void)part;
    const size_t first = (size_t)(from * GROUP * each);
    qobs_gguf_numbers(type, d->blocks + first * type->bytes, (size_t)(end * each) - first,
                      d->out + first * type->elements);
}

int qobs_gguf_dequantize(const qobs_gguf_dequantize_args *args, qobs_error *error)
{
    qobs_gguf_dequantize_args a;
    struct dequantizing d;
    struct runtime runtime;
    RETURN_IF_LEFT_OUT(searches, error);
    RETURN_IF_FAILED(ARGS_READ(qobs_gguf_dequantize_args, &a, args, runtime, error));
    RETURN_IF_FAILED(open_matrix(&d.m, a.type, a.rows, a.columns, error));
    RETURN_IF_FAILED(array_check("blocks", a.blocks, a.blocks_size, (size_t)a.rows * d.m.row_size, error));
    RETURN_IF_FAILED(array_check("out", a.out, a.out_size, (size_t)(a.rows * a.columns) * sizeof *a.out, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, a.runtime, error));
    if (a.rows == 0)
        return qobs_succeed(error);
    d.blocks = a.blocks;
    d.out = a.out;
    run_groups(&runtime, &d.m, dequantize_groups, &d);
    return qobs_succeed(error);
}
