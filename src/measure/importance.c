/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Columns are split for threads, so that each column is summed in the order of the tokens whatever the number of
 * threads. */
#include "measure/importance.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/split.h"
#include "number/convert.h"
#include "plan/row_list.h"

const char *qobs_importance_fault_text(enum importance_fault fault)
{
    static const char *const texts[IMPORTANCE_FAULTS] = {
        [IMPORTANCE_NO_WEIGHT] = "the observed tensor is no weight",
        [IMPORTANCE_NOT_OBSERVED] = "no activations have been observed",
        [IMPORTANCE_NOT_FINITE] = "the activations' squares are not all finite",
        [IMPORTANCE_NEGATIVE] = "importance is negative somewhere",
        [IMPORTANCE_ZERO] = "the activations, or their products in float, are 0 everywhere",
        [IMPORTANCE_STRATEGY] = "the strategy is none of channel, group and tensor_group",
        [IMPORTANCE_COLUMNS] = "the activations have another number of columns than the weight",
        [IMPORTANCE_BLOCKS] = "the columns are no multiple of hessian_block_size",
    };
    return texts[fault];
}

int qobs_importance_reserve(const struct runtime *runtime, struct importance *importance, int64_t columns, bool peaks,
                            qobs_error *error)
{
    if (importance->columns > 0)
        return QOBS_OK;
    const size_t count = (size_t)columns * (peaks ? 2 : 1), size = count * sizeof *importance->sum;
    double *sum = qobs_allocate_state(runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(sum, "importance", size, error));
    for (size_t j = 0; j < count; j++)
        sum[j] = 0;
    *importance = (struct importance){.columns = columns, .sum = sum, .peak = peaks ? sum + columns : NULL};
    return QOBS_OK;
}

void qobs_importance_release(const struct runtime *runtime, struct importance *importance)
{
    qobs_release(runtime, importance->sum, qobs_importance_count(importance) * sizeof *importance->sum);
    *importance = (struct importance){0};
}

/* ---- Adding ---------------------------------------------------------------------------------------------------- */

enum { PANEL = 256 }; /* columns that stay together */

static const struct split_rule rule = {
    .min_total = 1 << 17, .parts_per_thread = 1, .max_parts = INT64_MAX}; /* elements */

struct addition {
    const struct kernel_table *kernels;
    enum kernel_dtype dtype;
    size_t element;
    struct row_list rows;
    double *sum;
};

/* Adds the rows of columns [from, to) of one matrix. */
static void add_matrix(const struct addition *a, const unsigned char *x, int64_t rows, int64_t row_stride, int64_t from,
                       int64_t to)
{
    const int64_t stride = a->rows.column_in;
    if (stride == (int64_t)a->element) {
        a->kernels->squares_columns[a->dtype](x + from * stride, (ptrdiff_t)row_stride, (size_t)rows,
                                              (size_t)(to - from), a->sum + from);
        return;
    }
    unsigned char buffer[8 * PANEL];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t first = from; first < to; first += PANEL) {
            const int64_t n = to - first < PANEL ? to - first : PANEL;
            qobs_copy_elements((int64_t)a->element, n, x + row * row_stride + first * stride, stride, buffer,
                               (int64_t)a->element);
            a->kernels->squares_columns[a->dtype](buffer, 0, 1, (size_t)n, a->sum + first);
        }
}

static void add_panels(void *argument, int64_t part, int64_t first, int64_t end)
{
    (void)part;
    const struct addition *a = argument;
    const int64_t columns = a->rows.columns, from = first * PANEL, to = end * PANEL < columns ? end * PANEL : columns;
    for (int64_t row = 0, n, stride; row < a->rows.count; row += n) {
        n = qobs_rows_together(&a->rows, row, a->rows.count, &stride);
        add_matrix(a, qobs_row_at(&a->rows, row), n, stride, from, to);
    }
}

static void add_peaks(const struct view *v, double *peak)
{
    const int64_t columns = v->shape[v->ndim - 1];
    struct loops loops;
    qobs_loops_of_view(v, v->ndim, &loops);
    for (int64_t i = 0; i < v->elements; i++) {
        const double x = fabs((double)(float)qobs_element(qobs_loops_at(&loops, i).in, v->dtype));
        double *const most = &peak[i % columns];
        *most = isnan(*most) || x <= *most ? *most : x;
    }
}

int qobs_check_activations(const struct view *v, int64_t columns, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require_kernel_dtype(v->dtype, "activations", error));
    if (v->ndim == 0)
        return qobs_invalid(error, "activations: have no dimensions, the last must be the columns");
    if (columns > 0 && v->elements > 0 && v->shape[v->ndim - 1] != columns)
        return qobs_invalid(error, "activations: have %lld columns, those before had %lld",
                            (long long)v->shape[v->ndim - 1], (long long)columns);
    return QOBS_OK;
}

int qobs_importance_add(const struct runtime *runtime, const struct kernel_table *kernels,
                        struct importance *importance, bool peaks, const struct view *v, qobs_error *error)
{
    struct addition a = {.kernels = kernels, .element = qobs_dtype_size(v->dtype)};
    RETURN_IF_FAILED(qobs_check_activations(v, importance->columns, error));
    qobs_kernel_dtype_of(v->dtype, &a.dtype);
    if (v->elements == 0)
        return QOBS_OK;
    const int64_t columns = v->shape[v->ndim - 1];
    RETURN_IF_FAILED(qobs_importance_reserve(runtime, importance, columns, peaks, error));
    a.sum = importance->sum;
    qobs_rows_of_view(v, kernels, &a.rows);
    const struct split split = qobs_split(runtime, &rule, (columns + PANEL - 1) / PANEL, v->elements, 0);
    qobs_split_run(runtime, &split, add_panels, &a);
    for (int64_t j = 0; j < columns; j++) /* the bits of a NaN depend on the kernel, and a saved state shows them */
        importance->sum[j] = isnan(importance->sum[j]) ? (double)NAN : importance->sum[j];
    if (peaks)
        add_peaks(v, importance->peak);
    importance->tokens += (uint64_t)(v->elements / columns);
    return QOBS_OK;
}

/* ---- Using ----------------------------------------------------------------------------------------------------- */

void qobs_importance_sums(const struct importance *importance, float *sum)
{
    for (int64_t j = 0; j < importance->columns; j++)
        sum[j] = isnan(importance->sum[j]) ? NAN : (float)importance->sum[j];
}

void qobs_importance_means(const struct importance *importance, float *mean)
{
    for (int64_t j = 0; j < importance->columns; j++)
        mean[j] = importance->tokens == 0 ? 0 : (float)importance->sum[j] / (float)importance->tokens;
}

enum importance_fault qobs_importance_normalise(float *mean, int64_t columns)
{
    bool finite = true, negative = false, zero = true;
    double sum = 0;
    for (int64_t j = 0; j < columns; j++) {
        finite &= isfinite(mean[j]) != 0;
        negative |= mean[j] < 0;
        zero &= mean[j] == 0;
        sum += (double)mean[j];
    }
    if (!finite || negative || zero)
        return !finite ? IMPORTANCE_NOT_FINITE : negative ? IMPORTANCE_NEGATIVE : IMPORTANCE_ZERO;
    const float divisor = (float)(sum / (double)columns) + FLT_MIN;
    for (int64_t j = 0; j < columns; j++)
        mean[j] /= divisor;
    return IMPORTANCE_USABLE;
}
