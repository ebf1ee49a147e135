/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "optimal/gptq_rows.h"

#include "base/error.h"
#include "base/split.h"
#include "number/convert.h"
#include "number/number.h"

enum { ROWS = QOBS_GPTQ_ROWS, ARRAYS = 6 };

struct gptq_run {
    const struct gptq_rows *gptq;
    float *memory; /* [parts][ARRAYS][columns][ROWS] */
};

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
        w[k * ROWS] = g->value[row * g->columns + k];
    read_row(g->scale, row, g->columns, scale);
    if (g->zero_point) {
        read_row(g->zero_point, row, g->columns, add);
        for (int64_t k = 0; k < g->columns; k++)
            sub[k * ROWS] = add[k * ROWS];
    } else {
        for (int64_t k = 0; k < g->columns; k++) { /* -0 changes nothing */
            add[k * ROWS] = g->positive_zero ? 0.0f : -0.0f;
            sub[k * ROWS] = 0;
        }
    }
}

static void store_lane(const struct gptq_rows *g, int64_t row, const float *lane, int64_t size)
{
    const float *const w = lane, *const q = lane + 4 * size, *const e = lane + 5 * size;
    for (int64_t k = 0, at = row * g->columns; k < g->columns; k++, at++) {
        const float error = e[k * ROWS];
        g->value[at] = w[k * ROWS];
        g->quantized[at] = q[k * ROWS];
        g->error[at] = error;
        g->loss[at] = error * error;
    }
}

static void run_tiles(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct gptq_run *run = argument;
    const struct gptq_rows *g = run->gptq;
    const int64_t size = g->columns * ROWS;
    float *const tile = run->memory + part * ARRAYS * size;
    for (int64_t t = from; t < to; t++) {
        const int64_t first = t * ROWS, n = g->rows - first < ROWS ? g->rows - first : ROWS;
        for (int64_t r = 0; r < ROWS; r++)
            load_lane(g, first + (r < n ? r : n - 1), tile + r, size);
        g->kernels->gptq_block(g->quantizer, g->scale->dtype, g->factor, (size_t)g->factor_stride, (size_t)g->columns,
                               tile + size, tile + 2 * size, tile + 3 * size, tile, tile + 4 * size,
                               tile + 5 * size);
        for (int64_t r = 0; r < n; r++)
            store_lane(g, first + r, tile + r, size);
    }
}

int qobs_gptq_rows(const struct gptq_rows *g, qobs_error *error)
{
    static const struct split_rule rule = {.min_total = 1 << 14, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS};
    const int64_t tiles = (g->rows + ROWS - 1) / ROWS;
    const struct split split = qobs_split(g->runtime, &rule, tiles, g->rows * g->columns, 0);
    const size_t size = (size_t)(split.parts * ARRAYS * g->columns * ROWS) * sizeof(float);
    struct gptq_run run = {g, qobs_allocate(g->runtime, size)};
    if (!run.memory)
        return qobs_no_memory(error, "value: no memory for %zu bytes", size);
    qobs_split_run(g->runtime, &split, run_tiles, &run);
    qobs_release(g->runtime, run.memory, size);
    return QOBS_OK;
}
