/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_gptq_block: GPTQ of a block of columns. Rows are independent; 16 of them become the lanes of the kernel. */

#include "base/fpenv.h"
#include "base/split.h"
#include "base/struct_size.h"
#include "config/resolve.h"
#include "kernels/dispatch.h"
#include "number/number.h"
#include "quantize/row_quantizer.h"
#include "qobs/stateless.h"

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

struct gptq_rows {
    const qobs_gptq_block_args *args; /* matrices of [rows][columns] */
    const struct runtime *runtime;
    const struct kernel_table *kernels;
    const struct quantizer *quantizer;
    bool positive_zero;    /* a quotient of -0 becomes +0 */
    int64_t rows, columns; /* columns: at most GPTQ_MOST_COLUMNS */
    const float *factor;   /* rows factor_stride floats apart */
    int64_t factor_stride;
    const struct view *scale;      /* (rows, columns), F32, BF16 or F16 */
    const struct view *zero_point; /* the same of any dtype; NULL: there is none */
    float *memory;                 /* [parts][ARRAYS][columns][ROWS] */
};

enum { GPTQ_MOST_COLUMNS = 1024, ROWS = QOBS_GPTQ_ROWS, ARRAYS = 6 };

/* Element [row][column] of a matrix of qparams as a float, for each column, ROWS apart. */
static void read_row(const struct view *view, int64_t row, int64_t columns, float *to)
{
    const unsigned char *at = view->data + row * view->strides[0];
    const int64_t step = view->strides[1];
    for (int64_t k = 0; k < columns; k++, at += step) {
        float single;
        uint16_t half;
        if (view->dtype == QOBS_F32) {
            memcpy(&single, at, sizeof single);
        } else if (view->dtype == QOBS_BF16 || view->dtype == QOBS_F16) {
            memcpy(&half, at, sizeof half);
            single = view->dtype == QOBS_BF16 ? float_of_bf16(half) : float_of_f16(half);
        } else {
            single = (float)qobs_number_of(at, view->dtype);
        }
        to[k * ROWS] = single;
    }
}

/* Lane r of a tile; lanes beyond the last row are copies of it. */
static void load_lane(const struct gptq_rows *g, int64_t row, float *lane, int64_t size)
{
    float *const w = lane, *const scale = lane + size, *const add = lane + 2 * size, *const sub = lane + 3 * size;
    for (int64_t k = 0; k < g->columns; k++)
        w[k * ROWS] = g->args->value[row * g->columns + k];
    read_row(g->scale, row, g->columns, scale);
    if (!g->zero_point)
        return; /* as fill_zeros left them */
    read_row(g->zero_point, row, g->columns, add);
    for (int64_t k = 0; k < g->columns; k++)
        sub[k * ROWS] = add[k * ROWS];
}

/* Zero points of a tile if there are none. -0 changes nothing. */
static void fill_zeros(const struct gptq_rows *g, float *add, float *sub, int64_t size)
{
    for (int64_t i = 0; i < size; i++) {
        add[i] = g->positive_zero ? 0.0f : -0.0f;
        sub[i] = 0;
    }
}

static void store_lane(const struct gptq_rows *g, int64_t row, const float *lane, int64_t size)
{
    const float *const w = lane, *const q = lane + 4 * size, *const e = lane + 5 * size;
    const qobs_gptq_block_args *const to = g->args;
    for (int64_t k = 0, at = row * g->columns; k < g->columns; k++, at++) {
        const float error = e[k * ROWS];
        to->value[at] = w[k * ROWS];
        to->quantized[at] = q[k * ROWS];
        to->errors[at] = error;
        to->losses[at] = error * error;
    }
}

static void run_tiles(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct gptq_rows *g = argument;
    const int64_t size = g->columns * ROWS;
    float *const tile = g->memory + part * ARRAYS * size;
    fill_zeros(g, tile + 2 * size, tile + 3 * size, size);
    for (int64_t t = from; t < to; t++) {
        const int64_t first = t * ROWS, n = g->rows - first < ROWS ? g->rows - first : ROWS;
        for (int64_t r = 0; r < ROWS; r++)
            load_lane(g, first + (r < n ? r : n - 1), tile + r, size);
        g->kernels->gptq_block(g->quantizer, g->scale->dtype, g->factor, (size_t)g->factor_stride, (size_t)g->columns,
                               tile + size, tile + 2 * size, tile + 3 * size, tile, tile + 4 * size, tile + 5 * size);
        for (int64_t r = 0; r < n; r++)
            store_lane(g, first + r, tile + r, size);
    }
}

/* Results have the same bits for every number of threads. */
static int update_rows(struct gptq_rows *g, qobs_error *error)
{
    static const struct split_rule rule = {.min_total = 1 << 14, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS};
    const int64_t tiles = (g->rows + ROWS - 1) / ROWS;
    const struct split split = qobs_split(g->runtime, &rule, tiles, g->rows * g->columns, 0);
    const size_t size = (size_t)(split.parts * ARRAYS * g->columns * ROWS) * sizeof(float);
    g->memory = qobs_allocate(g->runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(g->memory, "value", size, error));
    qobs_split_run(g->runtime, &split, run_tiles, g);
    qobs_release(g->runtime, g->memory, size);
    return QOBS_OK;
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static int check_matrix(const struct view *view, const char *name, int64_t rows, int64_t columns, qobs_error *error)
{
    if (view->ndim != 2)
        return qobs_invalid(error, "%s: has %d dimensions, allowed are 2", name, view->ndim);
    if (view->shape[0] == rows && view->shape[1] == columns)
        return QOBS_OK;
    return qobs_invalid(error, "%s: has shape (%lld, %lld), allowed is (%lld, %lld)", name, (long long)view->shape[0],
                        (long long)view->shape[1], (long long)rows, (long long)columns);
}

static int open_factor(struct gptq_rows *g, const struct view *view, qobs_error *error)
{
    const int64_t step = (int64_t)sizeof(float);
    RETURN_IF_FAILED(check_matrix(view, "factor", g->columns, g->columns, error));
    if (view->dtype != QOBS_F32)
        return qobs_invalid(error, "factor: dtype is %s, allowed is F32", qobs_dtype_name(view->dtype));
    if ((uintptr_t)view->data % sizeof(float) != 0 || view->strides[0] % step != 0 ||
        (view->strides[1] != step && view->shape[1] > 1))
        return qobs_invalid(error, "factor: has strides of %lld and %lld bytes, allowed are contiguous, aligned rows",
                            (long long)view->strides[0], (long long)view->strides[1]);
    g->factor = (const float *)(const void *)view->data;
    g->factor_stride = view->strides[0] / step;
    return QOBS_OK;
}

static int open_scale(struct gptq_rows *g, const struct view *scale, qobs_error *error)
{
    if (scale->ndim != 2)
        return qobs_invalid(error, "scale: has %d dimensions, allowed are 2", scale->ndim);
    if (scale->dtype != QOBS_F32 && scale->dtype != QOBS_BF16 && scale->dtype != QOBS_F16)
        return qobs_invalid(error, "scale: dtype is %s, allowed are F32, BF16 and F16", qobs_dtype_name(scale->dtype));
    if (scale->shape[1] > GPTQ_MOST_COLUMNS)
        return qobs_invalid(error, "scale: has %lld columns, allowed are at most %d", (long long)scale->shape[1],
                            GPTQ_MOST_COLUMNS);
    g->scale = scale;
    g->rows = scale->shape[0];
    g->columns = scale->shape[1];
    return QOBS_OK;
}

/* The four matrices of the caller. */
static int check_values(const struct gptq_rows *g, qobs_error *error)
{
    const qobs_gptq_block_args *a = g->args;
    const size_t size = (size_t)(g->rows * g->columns) * sizeof(float);
    RETURN_IF_FAILED(qobs_require(a->value, "value", error));
    RETURN_IF_FAILED(qobs_require(a->quantized, "quantized", error));
    RETURN_IF_FAILED(qobs_require(a->errors, "errors", error));
    RETURN_IF_FAILED(qobs_require(a->losses, "losses", error));
    if (a->value_size != size)
        return qobs_invalid(error, "value_size: is %zu, needed are %zu bytes", a->value_size, size);
    for (int64_t i = 0; i < g->rows * g->columns; i++)
        if ((bits_of_float(a->value[i]) & 0x7f800000) == 0x7f800000)
            return qobs_fail(error, QOBS_ERROR_NONFINITE, "value: [%lld][%lld] is %g", (long long)(i / g->columns),
                             (long long)(i % g->columns), (double)a->value[i]);
    return QOBS_OK;
}

int qobs_gptq_block(const qobs_gptq_block_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(optimal, error);
    struct runtime runtime;
    qobs_gptq_block_args a;
    struct quantize_rule rule;
    struct view factor, scale, zero_point;
    RETURN_IF_FAILED(ARGS_READ(qobs_gptq_block_args, &a, args, runtime, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, a.runtime, error));
    RETURN_IF_FAILED(qobs_config_check(a.config, error));
    RETURN_IF_FAILED(qobs_require_scheme(a.config, error));
    RETURN_IF_FAILED(qobs_resolve_quantize(a.config, a.format, true, &rule, error));
    struct gptq_rows g = {.runtime = &runtime,
                          .kernels = qobs_kernels_active(),
                          .args = &a,
                          .quantizer = &rule.quantizer,
                          .positive_zero = rule.positive_zero};
    RETURN_IF_FAILED(qobs_view_of_tensor(&scale, a.scale, "scale", error));
    RETURN_IF_FAILED(open_scale(&g, &scale, error));
    RETURN_IF_FAILED(qobs_view_of_tensor(&factor, a.factor, "factor", error));
    RETURN_IF_FAILED(open_factor(&g, &factor, error));
    if (a.zero_point) {
        RETURN_IF_FAILED(qobs_view_of_tensor(&zero_point, a.zero_point, "zero_point", error));
        RETURN_IF_FAILED(check_matrix(&zero_point, "zero_point", g.rows, g.columns, error));
        g.zero_point = &zero_point;
    }
    RETURN_IF_FAILED(check_values(&g, error));
    if (scale.elements == 0)
        return qobs_succeed(error);
    FP_SCOPE;
    return qobs_finish(update_rows(&g, error), error);
}
