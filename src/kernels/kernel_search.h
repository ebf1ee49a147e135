/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels of range search. Elements are floats of magnitudes below 0.5, aligned to 64 bytes and padded with zeros to
 * a multiple of QOBS_SEARCH_LANES. A batch is QOBS_SEARCH_LANES qparams; its arrays of candidates are
 * [candidate][QOBS_SEARCH_LANES]. */
#pragma once

#include "kernels/slot.h"
#include "number/quantizer.h"

/* FEW: most elements of a qparam in a batch. MOST: most elements of one call. */
enum { QOBS_SEARCH_LANES = 16, QOBS_SEARCH_FEW = 128, QOBS_SEARCH_MOST = 1024 };

enum norm_kind {
    QOBS_NORM_1,
    QOBS_NORM_2,
    QOBS_NORM_3,
    QOBS_NORM_TABLE, /* a polynomial in the mantissa times a table of the exponent */
    QOBS_NORM_POW    /* SLEEF's pow */
};

/* |e|^norm for |e| < 1; made by qobs_search_norm (search/search_norm.c). TABLE takes e * QOBS_NORM_UNIT, so that the
 * biased exponent is below 64, and a polynomial in minus the mantissa, because setting bits yields that from any
 * sign and exponent. */
#define QOBS_NORM_UNIT 0x1p-63f
struct error_norm {
    enum norm_kind kind;
    float value;
    float polynomial[5];   /* coefficients of (-m)^0 to (-m)^4; that of (-m)^5 is 1, its factor is in the table */
    float low[8], high[8]; /* a biased exponent e below 64 has low[e % 8] * high[e / 8]; below 32 that is 0 */
    float prescale;        /* POW: a power of two that multiplies |e| first */
};

/* Candidates: q = round(x * inverse + shift), limited; the result is (q - shift) * scale. For integers shift is the
 * zero point plus 1.5 * 2^23. Candidate c is at index c * step; arrays are aligned to 64 bytes. */
struct search_candidates {
    const float *scale, *inverse, *shift;
    size_t step;
};

/* Memory that the caller needs next; none if from == end. Kernels prefetch as much of it as does not delay their own
 * loads. */
struct prefetch_ahead {
    const unsigned char *from, *end;
};

/* sum[c] = sum over i of weight[i] * |q_c(x[i]) - x[i]|^norm, in units of qobs_search_error_unit() (search_errors.h).
 *  - n: at most QOBS_SEARCH_MOST elements, without the padding, of one qparam. weight: as x, or NULL.
 *  - count: candidates, a multiple of 4; the sum of a candidate does not depend on it.
 *  - quantizer: an integer range with 0, or a float format with symmetric limits; not in_double.
 *  - with_shift: zero points may be other than 0. If a zero point is not itself representable (float formats, or beyond
 *    the integer range), padding has an error, so weight is required, with 0 for padding. */
#define QOBS_SEARCH_ERRORS(name)                                                                                       \
    void name(const struct quantizer *quantizer, const struct error_norm *norm, bool with_shift, const float *x,       \
              const float *weight, size_t n, const struct search_candidates *candidates, size_t count,                 \
              struct prefetch_ahead prefetch, float *sum)

/* The same for a batch of qparams with n <= QOBS_SEARCH_FEW elements each, or zeros; elements of a qparam start
 * `row` floats after those of the one before. Candidates' step is QOBS_SEARCH_LANES. Sums differ from
 * QOBS_SEARCH_ERRORS by rounding; the sum of a qparam does not depend on the other qparams. */
#define QOBS_SEARCH_BATCH(name)                                                                                        \
    void name(const struct quantizer *quantizer, const struct error_norm *norm, bool with_shift, const float *x,       \
              const float *weight, size_t row, size_t n, const struct search_candidates *candidates, size_t count,     \
              struct prefetch_ahead prefetch, float *sum)

/* For each qparam of a batch: the first of n steps with the smallest sum and that sum, if it is below `bound`;
 * otherwise -1 and `bound`. NaN is not below. `improved` gets a bit for each step whose sum is below `bound` and
 * below every sum before it, for any qparam. */
#define QOBS_SEARCH_IMPROVED(name)                                                                                     \
    void name(const float *sum, size_t n, const float *bound, int32_t *step, float *best, uint64_t *improved)

/* How a range becomes scale and zero point: compressed-tensors' formula in the dtype of the range. */
struct shrink_rule {
    bool integers, symmetric, mx;
    float quant_min, quant_max; /* limits of quantized numbers */
    int mx_offset;              /* MX: exponent of the largest number */
    float eps;                  /* replaces a scale of 0 */
    float floor;                /* smallest scale, or 0 */
    float min_p;                /* smallest of all p */
};

/* Candidates for a batch of ranges from min to max, numbers of the dtype, times p[i] for i < n. `factor`: powers of
 * two that multiply the elements. Writes scale, inverse and shift. inverse_p: 1 / p, or NULL; it saves divisions. MX
 * is not for F16. */
#define QOBS_SEARCH_SHRINK(name)                                                                                       \
    void name(const struct shrink_rule *how, const float *min, const float *max, const float *factor, const float *p,  \
              const float *inverse_p, size_t n, float *scale, float *inverse, float *shift)

/* n contiguous elements times `factor`, a power of two, as floats. finite_only: an element that is not finite
 * becomes 0. */
#define QOBS_SEARCH_LOAD(name) void name(const void *x, size_t n, double factor, bool finite_only, float *out)

/* |e|^norm in upstream's arithmetic: table[bits of |e|] is the power rounded to the dtype, for errors rounded to it.
 * Without it errors and powers are float. The exponent is then 1, 2 or 3, or there is a fine table. With |e| = t * (1 +
 * d), t the upper 16 bits of |e|, the power is fine[bits of t] times the first terms of the binomial series of d, which
 * is below 2^-7: within 2^-32. */
struct native_norm {
    const double *table; /* 2^15 numbers of the dtype, as doubles to be added; or NULL */
    int exponent;
    const float *fine; /* 2^15 entries, or NULL */
    float series[4];   /* factors of d to d^4 */
};

/* Adds to sum[c] the sum over i of weight[i] * |fake_quantize_c(x[i]) - x[i]|^norm, with one rounding to BF16 or F16
 * for each operation up to the error. x and scales are numbers of the dtype, not prescaled; otherwise arguments are
 * those of QOBS_SEARCH_ERRORS. A weight multiplies a power in float. */
#define QOBS_SEARCH_NATIVE(name)                                                                                       \
    void name(const struct quantizer *quantizer, const struct native_norm *norm, bool is_bf16, bool with_shift,        \
              const float *x, const float *weight, size_t n, const struct search_candidates *candidates, size_t count, \
              double *sum)

/* row[i * stride + c]: the number that QOBS_SEARCH_NATIVE adds to sum[c] for x[i], for BF16, integers without zero
 * points and a norm with a table. `row` has n rows; other arguments are those of QOBS_SEARCH_NATIVE. */
#define QOBS_SEARCH_NATIVE_ROWS(name)                                                                                  \
    void name(const struct quantizer *quantizer, const struct native_norm *norm, const float *x, size_t n,             \
              const struct search_candidates *candidates, size_t count, float *row, size_t stride)

/* The numbers of QOBS_SEARCH_NATIVE_ROWS for all elements up to a largest magnitude. Row 0 is that of zeros. A
 * magnitude is the bits of a BF16 number without the sign. Row m - first + 1 is that of magnitude m, from `first` to
 * `last`, and of both signs up to `symmetric`; a negative number above it has the row last - symmetric further on. All
 * candidates have the same numbers below `first`: power[m]. */
struct native_rows {
    const float *row; /* aligned to 32 bytes */
    size_t stride;    /* floats, a multiple of 8; those behind the candidates are finite */
    uint32_t first, symmetric, last;
    const double *power;
};

/* sum[c], for c < stride: what QOBS_SEARCH_NATIVE adds, with an error of at most row_sums_error(n) times 2^-24 of it.
 * Returns false, without sums, if a magnitude is above rows->last. x and n are those of QOBS_SEARCH_NATIVE. */
#define QOBS_SEARCH_ROW_SUMS(name) bool name(const struct native_rows *rows, const float *x, size_t n, float *sum)

/* Four floats are added up, each by a quarter of the padded elements, and then with one another. */
static inline uint32_t row_sums_error(size_t n)
{
    return (uint32_t)((n + QOBS_SEARCH_LANES - 1) / QOBS_SEARCH_LANES * QOBS_SEARCH_LANES / 4 + 2);
}

#define QOBS_SEARCH_SLOTS(EACH, with)                                                                                  \
    EACH(ONE, search_errors, QOBS_SEARCH_ERRORS, with)                                                                 \
    EACH(ONE, search_batch, QOBS_SEARCH_BATCH, with)                                                                   \
    EACH(ONE, search_improved, QOBS_SEARCH_IMPROVED, with)                                                             \
    EACH(ONE, search_native, QOBS_SEARCH_NATIVE, with)                                                                 \
    EACH(ONE, search_native_rows, QOBS_SEARCH_NATIVE_ROWS, with)                                                       \
    EACH(ONE, search_row_sums, QOBS_SEARCH_ROW_SUMS, with)                                                             \
    EACH(SCALAR_F64, search_load, QOBS_SEARCH_LOAD, with)                                                              \
    EACH(EACH_NARROW, search_shrink, QOBS_SEARCH_SHRINK, with)

QOBS_SEARCH_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_SEARCH(isa) QOBS_SEARCH_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_SEARCH)
