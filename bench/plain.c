/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Compiled once for every -march of plain.h, with -DMARCH=haswell or native. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "number/native.h"
#include "plain.h"

#define CAT_(a, b) a##_##b
#define CAT(a, b) CAT_(a, b)
#define MARCHED(name) CAT(name, MARCH)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

#define WIDTH 16
#include "plain_minmax.inl.h"
#define WIDTH 32
#include "plain_minmax.inl.h"
#define WIDTH 64
#include "plain_minmax.inl.h"

#define ENTRY(name) CAT(name, MARCH)
#include "templates/minmax_entries.inl.h"
#include "templates/indexed_entries.inl.h"

#define NATIVE_BODY "plain_native.inl.h"
#include "number/native_each.inl.h"

/* Integers without a zero point and norms by powf, as the benchmarks ask for. 16 sums side by side: gcc does not
 * reorder floats. */
static void search_errors(const struct quantizer *quantizer, const struct error_norm *norm, bool with_shift,
                          const float *x, const float *weight, size_t n, const struct search_candidates *candidates,
                          size_t count, struct prefetch_ahead prefetch, float *sum)
{
    (void)with_shift, (void)weight, (void)prefetch;
    const float quant_min = (float)quantizer->quant_min, quant_max = (float)quantizer->quant_max,
                exponent = norm->value;
    enum { LANES = 16 };
    const bool squared = norm->kind == QOBS_NORM_2;
    for (size_t c = 0; c < count; c++) {
        const float scale = candidates->scale[c * candidates->step],
                    inverse = candidates->inverse[c * candidates->step];
        float sums[LANES] = {0}, total = 0;
        for (size_t i = 0; i < n; i += LANES) /* filled up with zeros */
            for (size_t k = 0; k < LANES; k++) {
                float q = x[i + k] * inverse;
                q = q < quant_min ? quant_min : q;
                q = q > quant_max ? quant_max : q;
                const float e = rintf(q) * scale - x[i + k];
                sums[k] += squared ? e * e : powf(fabsf(e), exponent);
            }
        for (size_t k = 0; k < LANES; k++)
            total += sums[k];
        sum[c] = total;
    }
}

/* One qparam after the other. */
static void search_batch(const struct quantizer *quantizer, const struct error_norm *norm, bool with_shift,
                         const float *x, const float *weight, size_t row, size_t n,
                         const struct search_candidates *candidates, size_t count, struct prefetch_ahead prefetch,
                         float *sum)
{
    enum { MOST = 256 };
    float of_one[MOST];
    for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
        const struct search_candidates own = {candidates->scale + i, candidates->inverse + i, candidates->shift + i,
                                              candidates->step};
        search_errors(quantizer, norm, with_shift, x + i * row, weight, n, &own, count, prefetch, of_one);
        for (size_t c = 0; c < count; c++)
            sum[c * QOBS_SEARCH_LANES + i] = of_one[c];
    }
}

bool CAT(MARCHED(plain), usable)(void);

#define EACH_DTYPE(name) {name##_f32, name##_bf16, name##_f16, name##_f64}
#define DECLARE(dtype)                                                                                                 \
    QOBS_ABSMAX_ROWS(ENTRY(qobs_absmax_rows_##dtype));                                                                 \
    QOBS_ABSMAX_COLUMNS(ENTRY(qobs_absmax_columns_##dtype))
DECLARE(f32);
DECLARE(bf16);
DECLARE(f16);
DECLARE(f64);

#define EACH_ENTRY(name) {ENTRY(name##_f32), ENTRY(name##_bf16), ENTRY(name##_f16), ENTRY(name##_f64)}

const struct kernel_table MARCHED(plain) = {
    .isa = "plain-" TEXT(MARCH),
    .summary = "gcc -O3 -march=" TEXT(MARCH),
    .usable = CAT(MARCHED(plain), usable),
    .minmax_rows = EACH_ENTRY(qobs_minmax_rows),
    .minmax_row_panels = EACH_ENTRY(qobs_minmax_row_panels),
    .minmax_columns = EACH_ENTRY(qobs_minmax_columns),
    .minmax_indexed = EACH_ENTRY(qobs_minmax_indexed),
    .absmax_rows = EACH_ENTRY(qobs_absmax_rows),
    .absmax_columns = EACH_ENTRY(qobs_absmax_columns),
    .fake_quantize_rows = EACH_DTYPE(fake_quantize_rows),
    .fake_quantize_columns = EACH_DTYPE(fake_quantize_columns),
    .histogram_rows = EACH_DTYPE(histogram_rows),
    .squares_columns = EACH_DTYPE(squares_columns),
    .search_errors = search_errors,
    .search_batch = search_batch,
};
