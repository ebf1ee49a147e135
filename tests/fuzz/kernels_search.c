/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels of fake-quantize and range search. */
#include <float.h>
#include <math.h>

#include "kernels_calls.h"
#include "number/format.h"
#include "number/number.h"
#include "qobs/format.h"
#include "search/search_errors.h"

/* ---- Fake-quantize ----------------------------------------------------------------------------------------------- */

/* format: NULL: integers. */
static struct quantizer take_quantizer(struct bytes *b, const qobs_format **format)
{
    struct quantizer q;
    *format = take_below(b, 2) ? qobs_format_at(take_below(b, qobs_format_count())) : NULL;
    if (!*format) {
        const int bits = 1 + (int)take_below(b, 32);
        const bool is_signed = take_below(b, 2);
        const int64_t quant_min = is_signed ? -(INT64_C(1) << (bits - 1)) : 0, span = (INT64_C(1) << bits) - 1;
        qobs_quantizer_for_integers(&q, quant_min, quant_min + span, take_below(b, 2));
    } else {
        qobs_quantizer_for_format(&q, *format);
    }
    return q;
}

/* Any positive number, and sometimes one that is none. */
static double take_scale(struct bytes *b)
{
    const size_t way = take_below(b, 16);
    const float f = way < 8    ? ldexpf(1 + (float)take(b, 2) / 65536, (int)take_below(b, 24) - 16)
                    : way < 14 ? fabsf(take_float(b))
                               : take_float(b);
    return (double)f;
}

void fuzz_fake_quantize(struct bytes *b)
{
    enum { MOST = 3000 };
    static unsigned char expected[MOST_BYTES], arrays[3][MOST * 8];
    struct matrix m;
    const qobs_format *format;
    struct quantizer q = take_quantizer(b, &format);
    const bool columns = take_below(b, 2), zero_points = take_below(b, 2), in_place = take_below(b, 4) == 0;
    const size_t qparam_stride = take_below(b, 2);
    q.in_float = take_below(b, 2);
    const size_t kept = 1 + take_below(b, 8);
    double scale[8], zero_point[8];
    for (size_t i = 0; i < kept; i++) {
        scale[i] = take_scale(b);
        zero_point[i] = !zero_points ? 0
                        : q.torch || !format
                            ? q.quant_min + floor((q.quant_max - q.quant_min) / 255 * (double)take(b, 1))
                            : (double)take(b, 1) - 128;
    }
    take_matrix(b, &m, SIZE_MAX);
    const bool wide = m.dtype->size == 8;
    for (size_t i = 0; i < MOST; i++) {
        const double of_one[] = {scale[i % kept], zero_point[i % kept], zero_point[i % kept]};
        for (int k = 0; k < 3; k++) {
            const float narrow = (float)of_one[k];
            memcpy(arrays[k] + i * (wide ? 8 : 4), wide ? (const void *)&of_one[k] : (const void *)&narrow,
                   wide ? 8 : 4);
        }
    }
    const bool needed = columns || zero_points;
    const struct qparam_pair qparams = {arrays[0], needed ? arrays[1] : NULL, needed ? arrays[2] : NULL};
    const ptrdiff_t step = (ptrdiff_t)(m.length * m.dtype->size);
    const size_t bytes = m.count * (size_t)step;
    const struct kernel_table *table = &qobs_kernels_scalar;
    size_t next = 0;
    do {
        unsigned char *out = table == &qobs_kernels_scalar ? expected : arena_place(&first_output, bytes, next % 2, 0);
        const unsigned char *x = m.x;
        ptrdiff_t stride = m.stride;
        if (in_place) {
            for (size_t i = 0; i < m.count; i++)
                memcpy(out + (ptrdiff_t)i * step, m.x + (ptrdiff_t)i * m.stride, (size_t)step);
            x = out;
            stride = step;
        }
        if (columns)
            table->fake_quantize_columns[m.index](&q, x, stride, out, step, m.count, m.length, &qparams);
        else
            table->fake_quantize_rows[m.index](&q, x, stride, out, step, m.count, m.length, &qparams,
                                               (ptrdiff_t)qparam_stride);
        for (size_t i = 0; i < bytes && table != &qobs_kernels_scalar; i++)
            if (out[i] != expected[i])
                finding("%s: fake_quantize_%s_%s: element %zu is %llx, scalar's %llx", table->isa,
                        columns ? "columns" : "rows", m.dtype->name, i / m.dtype->size,
                        (unsigned long long)load_bits(m.dtype, out + i / m.dtype->size * m.dtype->size),
                        (unsigned long long)load_bits(m.dtype, expected + i / m.dtype->size * m.dtype->size));
    } while ((table = next_table(&next)));
}

/* ---- Search ------------------------------------------------------------------------------------------------------ */

enum { MOST_CANDIDATES = 128 };

static const struct search_norm *take_norm(struct bytes *b)
{
    static const double values[] = {2, 2.4, 1, 3, 2.7, 0.4, 4, 4.2, 6.5, 1.5, 24, 100};
    static struct search_norm made[sizeof values / sizeof *values];
    const size_t i = take_below(b, sizeof values / sizeof *values);
    if (made[i].errors.value == 0 && qobs_search_norm(&made[i], values[i], NULL) != QOBS_OK)
        must(qobs_search_norm(&made[i], 2, NULL) == QOBS_OK); /* without SLEEF */
    return &made[i];
}

static size_t padded(size_t n) { return (n + QOBS_SEARCH_LANES - 1) / QOBS_SEARCH_LANES * QOBS_SEARCH_LANES; }

/* Magnitudes below 0.5, and zeros as padding. */
static void take_elements(struct bytes *b, float *x, size_t n)
{
    struct rng rng = {take(b, 4)};
    const int spread = (int)take_below(b, 40);
    for (size_t i = 0; i < padded(n); i++) {
        const double exponent = (double)rng_below(&rng, (size_t)spread + 1),
                     u = (double)(rng_next(&rng) >> 11) * 0x1p-53;
        const float value = b->left >= 4 ? take_float(b) : (float)ldexp(u - 0.5, -(int)exponent);
        x[i] = i < n && fabsf(value) < 0.5f ? value : 0;
    }
}

/* Errors of one qparam, or of a batch. */
void fuzz_search_errors(struct bytes *b)
{
    enum { LANES = QOBS_SEARCH_LANES, MOST = MOST_CANDIDATES * LANES };
    static _Alignas(64) float weight[QOBS_SEARCH_FEW * LANES], scale[MOST], inverse[MOST], shift[MOST], expected[MOST],
        got[MOST];
    const qobs_format *format;
    const bool batch = take_below(b, 2);
    const size_t bits = 2 + take_below(b, 15), most = batch ? QOBS_SEARCH_FEW : QOBS_SEARCH_MOST,
                 n = 1 + take_below(b, take_below(b, 4) ? 40 : most);
    struct quantizer q = take_quantizer(b, &format);
    const bool integers = !format;
    if (integers) {
        qobs_quantizer_for_integers(&q, -(INT64_C(1) << (bits - 1)), (INT64_C(1) << (bits - 1)) - 1, false);
    } else if (q.in_double || q.quant_min != -q.quant_max || format->mantissa == 0) {
        format = qobs_format_find("fp8_e4m3");
        qobs_quantizer_for_format(&q, format);
    }
    const struct search_norm *norm = take_norm(b);
    const size_t count = 4 * (1 + take_below(b, MOST_CANDIDATES / 4)), qparams = batch ? LANES : 1;
    const bool shifted = take_below(b, 2), weighted = (shifted && !integers) || take_below(b, 2);
    struct rng rng = {take(b, 4)};
    for (size_t c = 0; c < count * qparams; c++) {
        const float zero_point =
            !shifted   ? 0
            : integers ? (float)(q.quant_min + floor((q.quant_max - q.quant_min) * (double)rng_below(&rng, 256) / 255))
                       : qobs_format_round(format, (float)rng_below(&rng, 17) - 8, true);
        scale[c] =
            (float)(ldexp(1 + (double)rng_below(&rng, 1 << 23) * 0x1p-23, (int)rng_below(&rng, 12) - 10) / q.quant_max);
        if (rng_below(&rng, 16) == 0)
            scale[c] = float_of_bits((uint32_t)(rng_next(&rng) & 0x7fffffff));
        scale[c] = isfinite(scale[c]) && scale[c] > 0 ? scale[c] : FLT_MIN;
        qobs_search_candidate(integers, scale[c], zero_point, &inverse[c], &shift[c]);
    }
    const size_t row = padded(n), elements_in_all = row * qparams;
    float *x = (float *)(void *)arena_place(&elements, elements_in_all * sizeof *x, true, 0);
    for (size_t i = 0; i < elements_in_all; i++)
        weight[i] = i % row < n ? (float)rng_below(&rng, 1000) / 100 : 0;
    for (size_t i = 0; i < qparams; i++)
        take_elements(b, x + i * row, n);
    const struct search_candidates candidates = {scale, inverse, shift, qparams};
    const float *const weights = weighted ? weight : NULL;
    const unsigned char *const wanted = (const unsigned char *)x;
    const struct prefetch_ahead prefetch = {wanted, wanted + (weighted ? 0 : elements_in_all * sizeof *x)};
    const struct kernel_table *table = &qobs_kernels_scalar;
    size_t next = 0;
    do {
        float *const sum = table == &qobs_kernels_scalar ? expected : got;
        if (batch)
            table->search_batch(&q, &norm->errors, shifted, x, weights, row, n, &candidates, count, prefetch, sum);
        else
            table->search_errors(&q, &norm->errors, shifted, x, weights, n, &candidates, count, prefetch, sum);
        if (sum == got)
            same_floats(table, batch ? "errors of a batch" : "errors", got, expected, count * qparams);
    } while ((table = next_table(&next)));
}

void fuzz_search_improved(struct bytes *b)
{
    enum { LANES = QOBS_SEARCH_LANES, MOST = 200 };
    const size_t n = take_below(b, MOST);
    float *sum = (float *)(void *)arena_place(&elements, n * LANES * sizeof *sum, true, 0);
    _Alignas(64) float bound[LANES], best[2][LANES];
    int32_t step[2][LANES];
    struct rng rng = {take(b, 4)};
    const bool small = take_below(b, 2);
    for (size_t i = 0; i < LANES; i++)
        bound[i] = take_below(b, 2) ? FLT_MAX : take_float(b);
    for (size_t i = 0; i < n * LANES; i++)
        sum[i] = b->left >= 4 ? small ? (float)take(b, 1) : take_float(b) : (float)rng_below(&rng, 1000);
    uint64_t improved[2][MOST / 64 + 1] = {{0}};
    qobs_kernels_scalar.search_improved(sum, n, bound, step[0], best[0], improved[0]);
    const struct kernel_table *table;
    for (size_t i = 0; (table = next_table(&i));) {
        memset(improved[1], 0, sizeof improved[1]);
        table->search_improved(sum, n, bound, step[1], best[1], improved[1]);
        must(memcmp(improved[1], improved[0], sizeof improved[0]) == 0);
        must(memcmp(step[1], step[0], sizeof step[0]) == 0);
        same_floats(table, "best", best[1], best[0], LANES);
    }
}

void fuzz_search_load(struct bytes *b)
{
    static float expected[3000];
    struct matrix m;
    const bool finite_only = take_below(b, 2);
    const double factor = ldexp(1, (int)take_below(b, 250) - 125);
    take_matrix(b, &m, SIZE_MAX);
    if (m.count == 0)
        return;
    qobs_kernels_scalar.search_load[m.index](m.x, m.length, factor, finite_only, expected);
    const struct kernel_table *table;
    for (size_t i = 0; (table = next_table(&i));) {
        float *got = (float *)(void *)arena_place(&first_output, m.length * sizeof *got, true, 0);
        table->search_load[m.index](m.x, m.length, factor, finite_only, got);
        same_floats(table, "loaded", got, expected, m.length);
    }
}

/* A finite number of the dtype. */
static float take_bound(struct bytes *b, const struct dtype *dtype)
{
    const uint64_t bits = take(b, dtype->size);
    const double value = value_of_bits(dtype, bits);
    return isfinite(value) ? (float)value : 0;
}

void fuzz_search_shrink(struct bytes *b)
{
    enum { LANES = QOBS_SEARCH_LANES };
    static const double greatest_of_floats[] = {6, 448};
    static _Alignas(64) float p[MOST_CANDIDATES], inverse_p[MOST_CANDIDATES], out[2][3][MOST_CANDIDATES * LANES];
    _Alignas(64) float min[LANES], max[LANES], factor[LANES];
    const size_t dtype = take_below(b, QOBS_KERNEL_F64), n = 1 + take_below(b, MOST_CANDIDATES);
    const int bits = 2 + (int)take_below(b, 15);
    const bool integers = take_below(b, 2), mx = !integers && dtype != QOBS_KERNEL_F16 && take_below(b, 2),
               e4m3 = take_below(b, 2);
    const float half = ldexpf(1, bits - 1), most = integers ? half - 1 : (float)greatest_of_floats[e4m3];
    struct shrink_rule how = {.integers = integers,
                              .symmetric = !integers || take_below(b, 2),
                              .mx = mx,
                              .quant_min = integers ? -half : -most,
                              .quant_max = most,
                              .mx_offset = e4m3 ? 8 : 2,
                              .eps = mx                          ? 1
                                     : dtype == QOBS_KERNEL_F32  ? 0x1p-23f
                                     : dtype == QOBS_KERNEL_BF16 ? 0x1p-7f
                                                                 : 0x1p-10f,
                              .floor = take_below(b, 4) ? 0 : 0x1p-23f,
                              .min_p = 1};
    const double grid = 1 + (double)take_below(b, 300);
    for (size_t c = 0; c < n; c++) {
        p[c] = (double)c < grid ? (float)(1 - (double)c / grid) : 1;
        inverse_p[c] = 1 / p[c];
        how.min_p = p[c] < how.min_p ? p[c] : how.min_p;
    }
    const bool alike = take_below(b, 2), inverse = take_below(b, 2);
    for (size_t i = 0; i < LANES; i++) {
        const float u = take_bound(b, &dtypes[dtype]), v = take_bound(b, &dtypes[dtype]);
        min[i] = alike ? -1 - (float)i : u < v ? u : v;
        max[i] = alike ? 1 : u < v ? v : u;
        factor[i] = ldexpf(1, (int)take_below(b, 250) - 125);
    }
    const struct kernel_table *table = &qobs_kernels_scalar;
    size_t next = 0;
    do {
        float(*const to)[MOST_CANDIDATES * LANES] = out[table != &qobs_kernels_scalar];
        table->search_shrink[dtype](&how, min, max, factor, p, inverse ? inverse_p : NULL, n, to[0], to[1], to[2]);
        for (int i = 0; i < 3 && to != out[0]; i++)
            same_floats(table, ((const char *const[]){"scale", "inverse", "shift"})[i], to[i], out[0][i], n * LANES);
    } while ((table = next_table(&next)));
}
