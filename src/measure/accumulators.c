/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One row for each accumulator. */
#include "measure/accumulators.h"

#include "number/convert.h"
#include "number/exponent.h"
#include "number/native.h"
#include "plan/loops.h"

#define NATIVE_BODY "measure/accumulate.inl.h"
#include "number/native_each.inl.h"

void qobs_update_running(qobs_dtype dtype, size_t n, ptrdiff_t step, void *min, void *max, const void *lo,
                         const void *hi)
{
    FOR_NATIVE(dtype, running, n, step, min, max, lo, hi)
}

void qobs_update_absmax(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi, bool first)
{
    FOR_NATIVE(dtype, absmax, n, min, max, lo, hi, first)
}

static void extremes(const struct accumulator_params *params, const struct range_update *u)
{
    (void)params;
    qobs_update_running(u->dtype, u->n, 1, u->min, u->max, u->batch_min, u->batch_max);
}

static void lerp(const struct accumulator_params *params, const struct range_update *u)
{
    FOR_NATIVE(u->dtype, lerp, u->n, u->min, u->batch_min, params->averaging_constant)
    FOR_NATIVE(u->dtype, lerp, u->n, u->max, u->batch_max, params->averaging_constant)
}

static void moving_average(const struct accumulator_params *params, const struct range_update *u)
{
    FOR_NATIVE(u->dtype, moving_average, u->n, u->min, u->batch_min, params->averaging_constant)
    FOR_NATIVE(u->dtype, moving_average, u->n, u->max, u->batch_max, params->averaging_constant)
}

static void absmax(const struct accumulator_params *params, const struct range_update *u)
{
    (void)params;
    qobs_update_absmax(u->dtype, u->n, u->min, u->max, u->batch_min, u->batch_max, u->first);
}

static void absmax_first(const struct accumulator_params *params, const struct range_update *u)
{
    if (u->first)
        absmax(params, u);
}

/* Block floating point as AMD Quark has it: 8-bit integers under one power of two for each block. The magnitude is
 * doubled if an element of the batch does not fit the scale that follows. */
static void bfp(const struct accumulator_params *params, const struct range_update *u)
{
    const qobs_dtype scale_dtype = params->scale_dtype ? params->scale_dtype : u->dtype;
    FOR_NATIVE(u->dtype, absmax_bfp, scale_dtype, u->n, u->min, u->max, u->batch_min, u->batch_max, u->first)
}

const struct accumulator_ops qobs_accumulate_last = {.merge = MERGE_LAST, .replaces = true};
const struct accumulator_ops qobs_accumulate_extremes = {.update = extremes, .merge = MERGE_EXTREMES};
const struct accumulator_ops qobs_accumulate_lerp = {.update = lerp, .merge = MERGE_MEANS, .averages = true};
const struct accumulator_ops qobs_accumulate_moving_average = {
    .update = moving_average, .merge = MERGE_MEANS, .averages = true};
const struct accumulator_ops qobs_accumulate_mode = {.update = extremes, .merge = MERGE_EXTREMES, .counts_mode = true};
const struct accumulator_ops qobs_accumulate_absmax = {.update = absmax, .merge = MERGE_EXTREMES, .symmetric = true};
const struct accumulator_ops qobs_accumulate_absmax_last = {.update = absmax, .merge = MERGE_LAST, .symmetric = true};
const struct accumulator_ops qobs_accumulate_absmax_first = {
    .update = absmax_first, .merge = MERGE_LAST, .symmetric = true};
const struct accumulator_ops qobs_accumulate_bfp = {.update = bfp, .merge = MERGE_EXTREMES, .symmetric = true};

/* Model-Optimizer's BiasCalibrator: the mean of the batches' means, (mean * n + batch) / (n + 1) in float, rounded to
 * the dtype. */

static void running_mean(const struct accumulator_params *params, const struct range_update *u)
{
    const size_t size = qobs_dtype_size(u->dtype);
    const float before = (float)u->batches, after = (float)(u->batches + 1);
    (void)params;
    for (size_t i = 0; i < 2 * u->n; i++) {
        unsigned char *mean = (unsigned char *)(i % 2 ? u->max : u->min) + i / 2 * size;
        const unsigned char *batch = (const unsigned char *)(i % 2 ? u->batch_max : u->batch_min) + i / 2 * size;
        const float old = (float)qobs_element(mean, u->dtype), added = (float)qobs_element(batch, u->dtype);
        qobs_put_element(mean, u->dtype, (double)((old * before + added) / after));
    }
}

const struct accumulator_ops qobs_accumulate_running_mean = {.update = running_mean, .merge = MERGE_MEANS};

void qobs_accumulate(const struct accumulator *a, const struct range_update *update)
{
    if (a->ops->update && (!update->first || a->ops->symmetric))
        a->ops->update(&a->params, update);
}

/* ---- Mode -------------------------------------------------------------------------------------------------------- */

enum { VALUE = 4 }; /* bytes */

unsigned char *qobs_mode_scale(const struct mode_count *mode_count, size_t i)
{
    return mode_count->values + i * mode_count->n * 2 * VALUE;
}

unsigned char *qobs_mode_zero_point(const struct mode_count *mode_count, size_t i)
{
    return qobs_mode_scale(mode_count, i) + mode_count->n * VALUE;
}

/* Bytes of the one block that holds counts and values. */
static size_t size_of(size_t n, size_t workspace) { return workspace * (sizeof(uint64_t) + n * 2 * VALUE); }

int qobs_mode_reserve(const struct runtime *runtime, struct mode_count *mode_count, size_t n, size_t more,
                      qobs_error *error)
{
    if (mode_count->candidates + more <= mode_count->workspace)
        return QOBS_OK;
    const size_t workspace = 2 * mode_count->candidates + more, size = size_of(n, workspace);
    uint64_t *count = qobs_allocate_state(runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(count, "observer", size, error));
    struct mode_count wider = {.n = n,
                               .candidates = mode_count->candidates,
                               .workspace = workspace,
                               .count = count,
                               .values = (unsigned char *)(count + workspace)};
    if (mode_count->candidates > 0) {
        memcpy(wider.count, mode_count->count, mode_count->candidates * sizeof *count);
        memcpy(wider.values, mode_count->values, mode_count->candidates * n * 2 * VALUE);
    }
    qobs_mode_release(runtime, mode_count);
    *mode_count = wider;
    return QOBS_OK;
}

void qobs_mode_add(struct mode_count *mode_count, uint64_t count)
{
    const size_t last = mode_count->candidates;
    for (size_t i = 0; i < last; i++)
        if (memcmp(qobs_mode_scale(mode_count, i), qobs_mode_scale(mode_count, last), mode_count->n * 2 * VALUE) == 0) {
            mode_count->count[i] += count;
            return;
        }
    mode_count->count[last] = count;
    mode_count->candidates++;
}

void qobs_mode_read(const struct mode_count *mode_count, void *scale, void *zero_point)
{
    size_t mode = 0;
    for (size_t i = 1; i < mode_count->candidates; i++)
        if (mode_count->count[i] > mode_count->count[mode])
            mode = i;
    if (scale)
        memcpy(scale, qobs_mode_scale(mode_count, mode), mode_count->n * VALUE);
    if (zero_point)
        memcpy(zero_point, qobs_mode_zero_point(mode_count, mode), mode_count->n * VALUE);
}

void qobs_mode_release(const struct runtime *runtime, struct mode_count *mode_count)
{
    if (mode_count->count)
        qobs_release(runtime, mode_count->count, size_of(mode_count->n, mode_count->workspace));
    *mode_count = (struct mode_count){0};
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* A row counts as a token once an element other than 0 is found. That element is nearly always the first one, so one
 * cache line a row is read. Rows of zeros are read completely, as words with masked sign bits, in blocks that the
 * compiler vectorises. */

enum { BLOCK = 1024 }; /* bytes */

/* All bits but the signs: -0 is a zero, NaN is not. */
static uint64_t magnitude_mask(size_t element)
{
    return element == 2 ? UINT64_C(0x7fff7fff7fff7fff) : element == 4 ? UINT64_C(0x7fffffff7fffffff) : INT64_MAX;
}

static bool any_bit(const unsigned char *x, size_t bytes, uint64_t mask)
{
    uint64_t word, all = 0;
    size_t i = 0;
    for (; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, x + i, sizeof word);
        all |= word;
    }
    word = 0;
    memcpy(&word, x + i, bytes - i);
    return ((all | word) & mask) != 0;
}

static bool row_has_nonzero(const struct view *v, const unsigned char *x, int64_t length, int64_t stride)
{
    const size_t element = qobs_dtype_size(v->dtype);
    const uint64_t mask = magnitude_mask(element);
    if (stride != (int64_t)element && length > 1) {
        for (int64_t i = 0; i < length; i++)
            if (any_bit(x + i * stride, element, mask))
                return true;
        return false;
    }
    const size_t bytes = (size_t)length * element;
    if (any_bit(x, element < bytes ? element : bytes, mask))
        return true;
    for (size_t i = 0; i < bytes; i += BLOCK)
        if (any_bit(x + i, bytes - i < BLOCK ? bytes - i : BLOCK, mask))
            return true;
    return false;
}

uint64_t qobs_tokens(const struct view *v) { return v->ndim == 2 ? (uint64_t)v->shape[0] : 0; }

uint64_t qobs_nonzero_tokens(const struct view *v)
{
    const int last = v->ndim - 1;
    const int64_t length = last < 0 ? 1 : v->shape[last], stride = last < 0 ? 0 : v->strides[last];
    const int64_t rows = v->elements > 0 ? v->elements / length : 0;
    struct loops loops;
    uint64_t tokens = 0;
    qobs_loops_of_view(v, last < 0 ? 0 : last, &loops);
    for (int64_t i = 0; i < rows; i++)
        tokens += row_has_nonzero(v, qobs_loops_at(&loops, i).in, length, stride);
    return tokens;
}
