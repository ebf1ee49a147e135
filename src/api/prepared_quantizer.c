/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prepared quantizers: their arguments and their life. */
#include "api/open_quantizer.h"

#include "base/struct_size.h"
#include "kernels/dispatch.h"
#include "kernels/level1.h"
#include "observer/observer.h"
#include "plan/make_plan.h"
#include "qobs/quantizer.h"
#include "qobs/stateless.h"
#include "quantize/row_quantizer.h"

struct qobs_quantizer {
    struct row_quantizer rows;
    bool in_place; /* in memory of the caller */
};

enum { ALIGNMENT = 16 };

#define MAX_COLUMNS (INT64_C(1) << 40)

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static int check_flag(const char *name, int value, qobs_error *error)
{
    return value == 0 || value == 1 ? QOBS_OK : qobs_invalid(error, "%s: is %d, allowed are 0 and 1", name, value);
}

static int check_matrix(const qobs_quantizer_args *a, qobs_error *error)
{
    enum kernel_dtype unused;
    if (!qobs_kernel_dtype_of(a->dtype, &unused))
        return qobs_invalid(error, "dtype: is %s (%d), allowed are F32, BF16, F16, F64",
                            qobs_dtype_name(a->dtype) ? qobs_dtype_name(a->dtype) : "unknown", (int)a->dtype);
    if (a->columns < 1 || a->columns > MAX_COLUMNS)
        return qobs_invalid(error, "columns: is %lld, allowed are 1 to 2^40", (long long)a->columns);
    RETURN_IF_FAILED(check_flag("dynamic", a->dynamic, error));
    RETURN_IF_FAILED(check_flag("packed", a->packed, error));
    RETURN_IF_FAILED(check_flag("dequantized", a->dequantized, error));
    if (a->packed && a->dequantized)
        return qobs_invalid(error, "packed: is 1, but dequantized is 1; packed are codes");
    return QOBS_OK;
}

static int check_packing(const struct row_quantizer *q, qobs_error *error)
{
    const struct row_geometry *g = &q->geometry;
    if (q->rule.code_bits != 4)
        return qobs_invalid(error, "packed: is 1, but codes have %d bits; packed are codes of 4", q->rule.code_bits);
    if (g->columns % 8 != 0)
        return qobs_invalid(error, "packed: is 1, but columns is %lld, not a multiple of 8", (long long)g->columns);
    if (g->run % 2 != 0)
        return qobs_invalid(error, "packed: is 1, but groups have %lld columns, an odd number", (long long)g->run);
    return QOBS_OK;
}

/* The granularity of rows. A plan for as many as share qparams checks the columns. */
static int open_geometry(struct row_quantizer *q, const qobs_quantizer_args *a, qobs_error *error)
{
    const struct granularity *granularity = &q->rule.granularity;
    const bool by_rows = qobs_row_geometry_of(granularity, a->columns, &q->geometry);
    const int64_t shape[2] = {by_rows && q->geometry.unit > 0 ? q->geometry.unit : 1, a->columns};
    qobs_plan plan;
    const qobs_tensor matrix = {sizeof matrix, &plan, a->dtype, 2, shape, NULL}; /* data is not read */
    RETURN_IF_FAILED(qobs_plan_make(&plan, granularity, &matrix, NULL, &q->runtime, error));
    q->rule.formula.params.rank = plan.range.ndim == 0 ? RANK_SCALAR : RANK_TENSOR; /* as in an observer */
    qobs_plan_unmake(&plan);
    return by_rows ? QOBS_OK
                   : qobs_fail(error, QOBS_ERROR_UNSUPPORTED,
                               "config: the qparams of %s are not those of rows and of runs of columns",
                               granularity->params.name);
}

/* The dtypes of qparams: those of the formula, or of the caller. */
static int open_dtypes(struct row_quantizer *q, const qobs_quantizer_args *a, qobs_error *error)
{
    static const float any = 1;
    const struct range_view ranges = {
        .dtype = a->dtype, .rank = q->rule.formula.params.rank, .global_scale = q->rule.has_global_scale ? &any : NULL};
    const struct qparam_dtypes dtypes = qobs_formula_dtypes(&q->rule.formula, &ranges);
    if (a->dynamic && (a->scale_dtype || a->zero_point_dtype))
        return qobs_invalid(error, "%s: is set, but dynamic is 1; the configuration says it",
                            a->scale_dtype ? "scale_dtype" : "zero_point_dtype");
    q->scale_dtype = a->scale_dtype ? a->scale_dtype : dtypes.scale;
    q->zero_point_dtype = a->zero_point_dtype ? a->zero_point_dtype : dtypes.zero_point;
    if (qobs_dtype_size(q->zero_point_dtype) == 0)
        return qobs_invalid(error, "zero_point_dtype: %d is unknown", (int)q->zero_point_dtype);
    if (q->scale_dtype != QOBS_F32 && (q->scale_dtype != a->dtype || q->rule.quantizer.torch))
        return qobs_invalid(error, "scale_dtype: is %s (%d), allowed are F32%s",
                            qobs_dtype_name(q->scale_dtype) ? qobs_dtype_name(q->scale_dtype) : "unknown",
                            (int)q->scale_dtype, q->rule.quantizer.torch ? "" : " and dtype");
    return QOBS_OK;
}

/* Blocks have scales of their own, and all of their elements. */
static int check_blocks(const qobs_quantizer_args *a, const struct quantize_rule *rule, qobs_error *error)
{
    const char *name = rule->formula.params.name;
    const int64_t elements = q8_elements(rule->quantizer.block);
    if (!rule->quantizer.block)
        return QOBS_OK;
    if (!a->dynamic)
        return qobs_invalid(error, "dynamic: is 0, but blocks of %s hold their scales; 1 finds them", name);
    return a->columns % elements == 0 ? QOBS_OK
                                      : qobs_invalid(error, "columns: is %lld, blocks of %s need a multiple of %lld",
                                                     (long long)a->columns, name, (long long)elements);
}

static int check_dynamic(const qobs_quantizer_args *a, const struct quantize_rule *rule, qobs_error *error)
{
    if (a->format)
        return qobs_invalid(error, "format: is set, but dynamic is 1; the configuration says it");
    if (rule->formula.ops->real_zero_points && !rule->symmetric && rule->granularity.params.strategy == STRATEGY_TENSOR)
        return qobs_invalid(error, "dynamic: is 1, but %s has zero points of tokens; group_shape is PER_TENSOR",
                            rule->formula.params.name);
    if (rule->finds_scales)
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_UNSUPPORTED,
                     "dynamic: is 1, but %s searches; the presets llmc.*minmax, vllm.* and ggml.* measure a "
                     "range",
                     rule->formula.params.name);
}

int qobs_row_quantizer_open(struct row_quantizer *q, const qobs_quantizer_args *a, const struct runtime *runtime,
                            qobs_error *error)
{
    static const float any = 1;
    RETURN_IF_FAILED(qobs_config_check(a->config, error));
    RETURN_IF_FAILED(check_matrix(a, error));
    RETURN_IF_FAILED(qobs_resolve_quantize(a->config, a->format, !a->dequantized, &q->rule, error));
    RETURN_IF_FAILED(qobs_check_runtime_codes(&q->rule.quantizer, a->dtype, false, error));
    RETURN_IF_FAILED(check_blocks(a, &q->rule, error));
    if (a->dynamic)
        RETURN_IF_FAILED(check_dynamic(a, &q->rule, error));
    else
        RETURN_IF_LEFT_OUT(codes, error);
    q->runtime = *runtime;
    q->dtype = a->dtype;
    qobs_kernel_dtype_of(a->dtype, &q->kernel_dtype);
    RETURN_IF_FAILED(open_geometry(q, a, error));
    RETURN_IF_FAILED(open_dtypes(q, a, error));
    if (a->packed)
        RETURN_IF_FAILED(check_packing(q, error));
    q->f = (struct fake_quantize){
        .runtime = &q->runtime,
        .kernels = qobs_kernels_active(),
        .quantizer = q->rule.quantizer,
        .scale_dtype = q->scale_dtype,
        .zero_point_dtype = q->zero_point_dtype,
        .positive_zero = a->dequantized && q->rule.positive_zero,
        .global_scale = q->rule.has_global_scale ? &any : NULL,
        .direction = a->dequantized ? FAKE_QUANTIZE : TO_CODES,
        .kind = q->rule.kind,
        .packed = a->packed == 1,
        .pack_offset = q->rule.kind == QOBS_CODE_INTEGER ? 8 : 0,
    };
    struct quantization job;
    qobs_quantization_open(&job, &q->work, &q->f, a->dtype);
    q->qparams = job.qparams;
    q->work.pack = q->f.packed;
    /* An Intel Xeon with a large L1 does not need it: bench/notes/dynamic.md. */
    q->work.quantizer.next_rows = q->work.bounded.next_rows = a->dynamic && qobs_l1_kind() == QOBS_L1_SMALL;
    qobs_row_quantizer_finish(q);
    q->rule.finds_scales = a->dynamic == 1;
    return QOBS_OK;
}

static int read_args(qobs_quantizer_args *a, const qobs_quantizer_args *args, struct runtime *runtime,
                     qobs_error *error)
{
    RETURN_IF_FAILED(ARGS_READ(qobs_quantizer_args, a, args, runtime, error));
    return qobs_runtime_resolve(runtime, a->runtime, error);
}

int qobs_quantizer_create(qobs_quantizer **result, const qobs_quantizer_args *args, qobs_error *error)
{
    struct runtime runtime;
    qobs_quantizer_args a;
    RETURN_IF_FAILED(qobs_require(result, "quantizer", error));
    RETURN_IF_FAILED(read_args(&a, args, &runtime, error));
    qobs_quantizer *quantizer = qobs_allocate(&runtime, sizeof *quantizer);
    RETURN_IF_FAILED(qobs_require_memory(quantizer, "quantizer", sizeof *quantizer, error));
    const int status = qobs_row_quantizer_open(&quantizer->rows, &a, &runtime, error);
    if (status != QOBS_OK) {
        qobs_release(&runtime, quantizer, sizeof *quantizer);
        return status;
    }
    quantizer->in_place = false;
    *result = quantizer;
    return qobs_succeed(error);
}

size_t qobs_quantizer_size(void) { return sizeof(qobs_quantizer) + ALIGNMENT - 1; }

int qobs_quantizer_create_in(qobs_quantizer **result, void *memory, size_t size, const qobs_quantizer_args *args,
                             qobs_error *error)
{
    struct runtime runtime;
    qobs_quantizer_args a;
    if (!result || !memory)
        return qobs_invalid(error, "%s: is NULL", result ? "memory" : "quantizer");
    if (size < qobs_quantizer_size())
        return qobs_invalid(error, "size: is %zu bytes, a quantizer needs %zu", size, qobs_quantizer_size());
    RETURN_IF_FAILED(read_args(&a, args, &runtime, error));
    const size_t skipped = (ALIGNMENT - (uintptr_t)memory % ALIGNMENT) % ALIGNMENT;
    qobs_quantizer *quantizer = (qobs_quantizer *)(void *)((unsigned char *)memory + skipped);
    RETURN_IF_FAILED(qobs_row_quantizer_open(&quantizer->rows, &a, &runtime, error));
    quantizer->in_place = true;
    *result = quantizer;
    return qobs_succeed(error);
}

void qobs_quantizer_destroy(qobs_quantizer *quantizer)
{
    if (quantizer && !quantizer->in_place) {
        const struct runtime runtime = quantizer->rows.runtime;
        qobs_release(&runtime, quantizer, sizeof *quantizer);
    }
}

/* ---- Layout ------------------------------------------------------------------------------------------------------ */

static inline int64_t row_size(const struct row_quantizer *q)
{
    return qobs_row_quantizer_bytes(q, q->geometry.columns);
}

/* Blocks hold their scales. */
static inline int64_t qparams_of(const struct row_quantizer *q, int64_t rows)
{
    return rows == 0 || q->rule.quantizer.block ? 0 : qobs_geometry_units(&q->geometry, rows) * q->geometry.per_unit;
}

static inline bool has_zero_point(const struct row_quantizer *q)
{
    return !q->rule.symmetric && !q->rule.quantizer.block;
}

/* The limits of tensors: 2^48 elements. */
static int check_rows(const struct row_quantizer *q, int64_t rows, qobs_error *error)
{
    const struct row_geometry *g = &q->geometry;
    const int64_t most = INT64_C(1) << 48;
    int64_t elements;
    if (rows < 0 || !qobs_multiply(rows, g->columns, &elements) || elements > most)
        return qobs_invalid(error, "rows: is %lld, allowed are 0 to %lld", (long long)rows,
                            (long long)(most / g->columns));
    if (g->whole_units && rows % g->unit != 0)
        return qobs_invalid(error, "rows: is %lld, blocks of %lld rows do not divide it", (long long)rows,
                            (long long)g->unit);
    return QOBS_OK;
}

static qobs_dtype codes_dtype(const struct row_quantizer *q)
{
    if (q->f.direction == FAKE_QUANTIZE)
        return q->dtype;
    return q->rule.quantizer.block                              ? QOBS_U8
           : q->rule.kind == QOBS_CODE_INTEGER && !q->work.pack ? QOBS_I8
           : q->rule.kind == QOBS_CODE_E4M3                     ? QOBS_F8_E4M3
                                                                : QOBS_U8;
}

int qobs_quantizer_layout(const qobs_quantizer *quantizer, int64_t rows, qobs_quantized_layout *layout,
                          qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require(quantizer, "quantizer", error));
    const struct row_quantizer *q = &quantizer->rows;
    RETURN_IF_FAILED(out_check("layout", layout, SIZE_THROUGH(qobs_quantized_layout, codes_dtype), error));
    RETURN_IF_FAILED(check_rows(q, rows, error));
    const size_t count = (size_t)qparams_of(q, rows);
    qobs_quantized_layout own;
    memset(&own, 0, sizeof own);
    own.row_size = (size_t)row_size(q);
    own.codes_size = (size_t)(row_size(q) * rows);
    own.count = count;
    own.qparam_rows = (int64_t)count / q->geometry.per_unit;
    own.qparam_columns = q->rule.quantizer.block ? 0 : q->geometry.per_unit;
    own.scale_dtype = q->scale_dtype;
    own.zero_point_dtype = q->zero_point_dtype;
    own.scale_size = count * qobs_dtype_size(q->scale_dtype);
    own.zero_point_size = count * qobs_dtype_size(q->zero_point_dtype);
    own.has_zero_point = has_zero_point(q);
    own.has_global_scale = q->rule.has_global_scale;
    own.codes_dtype = codes_dtype(q);
    out_copy(layout, &own, sizeof own);
    return qobs_succeed(error);
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

/* A stride of rows of `size` bytes, 0 replaced by `size`. Rows reach less than 2^61 bytes. */
static int read_stride(const char *name, int64_t given, int64_t size, int64_t rows, int64_t *stride, qobs_error *error)
{
    *stride = given == 0 ? size : given;
    if (*stride < size)
        return qobs_invalid(error, "%s: is %lld bytes, a row has %lld", name, (long long)given, (long long)size);
    if (rows > 1 && *stride > (INT64_C(1) << 61) / (rows - 1) - size)
        return qobs_invalid(error, "%s: is %lld bytes, %lld rows reach further than 2^61", name, (long long)given,
                            (long long)rows);
    return QOBS_OK;
}

static int check_codes(const struct row_quantizer *q, const qobs_quantizer_run_args *a, struct row_call *c,
                       qobs_error *error)
{
    if (!a->codes && (!q->rule.finds_scales || q->rule.quantizer.block))
        return qobs_invalid(error, "codes: is NULL");
    if (!a->codes)
        return QOBS_OK;
    RETURN_IF_LEFT_OUT(codes, error);
    RETURN_IF_FAILED(read_stride("codes_stride", a->codes_stride, row_size(q), a->rows, &c->out_stride, error));
    const int64_t span = (a->rows - 1) * c->out_stride + row_size(q);
    return a->codes_size < (uint64_t)span
               ? qobs_invalid(error, "codes: has %zu bytes, its rows span %lld", a->codes_size, (long long)span)
               : QOBS_OK;
}

static int check_qparams(const struct row_quantizer *q, const qobs_quantizer_run_args *a, qobs_error *error)
{
    const size_t count = (size_t)qparams_of(q, a->rows);
    if (!q->rule.finds_scales)
        RETURN_IF_FAILED(qobs_check_runtime_zero_point(&q->rule.quantizer, q->rule.kind, a->zero_point, error));
    RETURN_IF_FAILED(array_check("scale", a->scale, a->scale_size, count * qobs_dtype_size(q->scale_dtype), error));
    if (a->zero_point || a->zero_point_size > 0 || (q->rule.finds_scales && has_zero_point(q)))
        RETURN_IF_FAILED(array_check("zero_point", a->zero_point, a->zero_point_size,
                                     count * qobs_dtype_size(q->zero_point_dtype), error));
    if ((a->global_scale != NULL) != q->rule.has_global_scale)
        return qobs_invalid(error, "global_scale: is %s, but the configuration has %s",
                            a->global_scale ? "set" : "NULL", a->global_scale ? "none" : "one");
    RETURN_IF_FAILED(qobs_check_global_scale(a->global_scale, error));
    if (q->rule.quantizer.torch && a->zero_point)
        return qobs_check_torch_zero_points(&q->rule.quantizer, a->zero_point, q->zero_point_dtype, (int64_t)count,
                                            error);
    return QOBS_OK;
}

static int check_sums(const struct row_quantizer *q, const qobs_quantizer_run_args *a, qobs_error *error)
{
    const char *name = a->squared_error ? "squared_error" : "energy";
    if (!a->squared_error && !a->energy)
        return QOBS_OK;
    if (!a->codes)
        return qobs_invalid(error, "%s: is set, but codes is NULL", name);
    RETURN_IF_FAILED(qobs_check_runtime_codes(&q->rule.quantizer, q->dtype, true, error));
    return q->f.direction == TO_CODES
               ? QOBS_OK
               : qobs_invalid(error, "%s: is set, but dequantized is 1; it is that of codes", name);
}

int qobs_quantizer_run(const qobs_quantizer *quantizer, const qobs_quantizer_run_args *args, qobs_error *error)
{
    qobs_quantizer_run_args a;
    struct nonfinite_count nonfinite = {0};
    double sum[2] = {0};
    RETURN_IF_FAILED(qobs_require(quantizer, "quantizer", error));
    const struct row_quantizer *q = &quantizer->rows;
    RETURN_IF_FAILED(ARGS_READ(qobs_quantizer_run_args, &a, args, counts, error));
    struct row_call c = {.rows = a.rows,
                         .x = a.value,
                         .out = a.codes,
                         .scale = a.scale,
                         .zero_point = a.zero_point,
                         .global_scale = a.global_scale,
                         .sum = a.squared_error || a.energy ? sum : NULL};
    RETURN_IF_FAILED(check_rows(q, a.rows, error));
    RETURN_IF_FAILED(check_qparams(q, &a, error));
    RETURN_IF_FAILED(check_sums(q, &a, error));
    if (a.counts) {
        RETURN_IF_FAILED(counts_check("counts", a.counts, error));
        if (!q->rule.finds_scales)
            return qobs_invalid(error, "counts: is set, but dynamic is 0; nothing is measured");
    }
    if (a.rows > 0) {
        RETURN_IF_FAILED(qobs_require(a.value, "value", error));
        RETURN_IF_FAILED(read_stride("value_stride", a.value_stride, q->geometry.columns * q->work.element, a.rows,
                                     &c.x_stride, error));
        RETURN_IF_FAILED(check_codes(q, &a, &c, error));
        if (q->rule.finds_scales)
            RETURN_IF_FAILED(qobs_quantize_rows_of(q, &c, &nonfinite, error));
        else
            qobs_quantize_rows_by(q, &c);
    }
    if (a.counts) {
        const qobs_counts counts = {.batches = 1,
                                    .elements = (uint64_t)(a.rows * q->geometry.columns),
                                    .nan = nonfinite.nan,
                                    .inf = nonfinite.inf};
        counts_copy(&counts, a.counts);
    }
    if (a.squared_error)
        *a.squared_error = sum[0];
    if (a.energy)
        *a.energy = sum[1];
    return qobs_succeed(error);
}
