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

/* |e|^norm for |e| < 1; made by qobs_search_norm (range/search_norm.c). TABLE takes e * QOBS_NORM_UNIT, so that the
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

/* sum[c] = sum over i of weight[i] * |q_c(x[i]) - x[i]|^norm, in units of qobs_search_unit() (range/search.h).
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

/* Numbers that are not above |e|^norm, for a norm from 2 to 3. Tangents: |e| * max over k of (slope[k] * |e| -
 * offset[k]). Chords: |e|^2 * (value[k] + slope[k] * |e|), k being the lower five bits of |e| from bit 22 on, for an
 * |e| of at least chord_min and below 2^16 times that; chord_surplus is a chord's number for chord_min. */
enum { QOBS_CHORDS = 2 * QOBS_SEARCH_LANES };

/* Tables for bounds of int4 errors in 16-bit integers, for scales that are (128 + m) * 2^(exponent - 7). Elements,
 * levels and errors are in units of 2^(exponent - 10). Step k lies between level k and the next one; beyond a limit
 * both are that limit. Its entry is k & 31. A power is at least slope[i] * e + offset[i] * offset_unit for each i, and
 * i = e / 32 fits best. If e is above `far`, it is at least far_slope * (e - far) more than the last tangent. Errors up
 * to NATIVE_INT4_MOST do not overflow a sum of 8 in 32 bits. */
enum {
    NATIVE_INT4_SIGNIFICANDS = 128,
    NATIVE_INT4_TANGENTS = 32,
    NATIVE_INT4_MIN_EXPONENT = -40,
    NATIVE_INT4_EXPONENTS = 81,
    NATIVE_INT4_MOST = 6000
};
struct native_int4 {
    int16_t middle[NATIVE_INT4_SIGNIFICANDS][32], half[NATIVE_INT4_SIGNIFICANDS][32];
    int16_t slope[NATIVE_INT4_TANGENTS], offset[NATIVE_INT4_TANGENTS];
    int16_t offset_unit, far, far_slope;
    float unit[NATIVE_INT4_EXPONENTS]; /* of a sum, by exponent; with what rounding may take away */
};

struct native_bound {
    const struct native_int4 *int4; /* NULL: the quantizer is not int4, or may have zero points */
    float chord_value[QOBS_CHORDS], chord_slope[QOBS_CHORDS];
    float chord_min, chord_surplus;
    float tangent_slope[2], tangent_offset[2];
    float limit; /* a candidate whose errors may reach it has no bound */
};

/* bound[c]: a number that is not above sum[c] of QOBS_SEARCH_NATIVE for BF16, as far as numbers of `rule` are not above
 * powers; it may be negative. 0: there is none. It differs between instruction sets. count: a multiple of 4. Otherwise
 * arguments are those of QOBS_SEARCH_NATIVE. */
#define QOBS_SEARCH_NATIVE_BOUND(name)                                                                                 \
    void name(const struct quantizer *quantizer, const struct native_bound *rule, bool with_shift, const float *x,     \
              size_t n, const struct search_candidates *candidates, size_t count, float *bound)

#define QOBS_SEARCH_SLOTS(EACH, with)                                                                                  \
    EACH(ONE, search_errors, QOBS_SEARCH_ERRORS, with)                                                                 \
    EACH(ONE, search_batch, QOBS_SEARCH_BATCH, with)                                                                   \
    EACH(ONE, search_improved, QOBS_SEARCH_IMPROVED, with)                                                             \
    EACH(ONE, search_native, QOBS_SEARCH_NATIVE, with)                                                                 \
    EACH(ONE, search_native_bound, QOBS_SEARCH_NATIVE_BOUND, with)                                                     \
    EACH(EACH_DTYPE, search_load, QOBS_SEARCH_LOAD, with)                                                              \
    EACH(EACH_NARROW, search_shrink, QOBS_SEARCH_SHRINK, with)

QOBS_SEARCH_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_SEARCH(isa) QOBS_SEARCH_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_SEARCH)
