/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantizes F32, BF16 and F16 to codes, 16 elements at a time, and adds up the squared errors of the same elements in
 * the same pass; included by quantize_native.inl.h, whose contract holds. F64 is codes_native.inl.h. */

#if MANTISSA_BITS == 23
#define lanes_load f32x16_load
#define lanes_round(v) (v)
#elif MANTISSA_BITS == 7
#define lanes_load f32x16_load_bf16
#define lanes_round f32x16_round_bf16
#else
#define lanes_load f32x16_load_f16
#define lanes_round f32x16_round_f16
#endif

/* Constants of a loop; all vectors but the first two are bits. */
struct NATIVE(lane_constants) {
    f32x16 quant_min, quant_max, exponent, min_normal, digits, least, sign, nan;
    ptrdiff_t ahead; /* bytes from an element to the line that is prefetched */
};

/* digits: moves the exponent of a number to that of the power of two whose last digit is the number's. least: the
 * exponent of min_normal as codes have it, less 1. */
ALWAYS_INLINE struct NATIVE(lane_constants) NATIVE(lanes_constants)(const struct NATIVE(quantizer) * q, int kind)
{
    const struct code_layout layout = code_layout(kind);
    return (struct NATIVE(lane_constants)){
        .quant_min = f32x16_constant(q->quant_min),
        .quant_max = f32x16_constant(q->quant_max),
        .exponent = f32x16_constant(INFINITY),
        .min_normal = f32x16_constant(float_of_bits((layout.least + 1) << 23)),
        .digits = f32x16_constant(float_of_bits((uint32_t)(23 - layout.mantissa) << 23)),
        .least = f32x16_constant(float_of_bits((layout.least + 1) << layout.mantissa)),
        .sign = f32x16_constant(float_of_bits(layout.sign)),
        .nan = f32x16_constant(float_of_bits(layout.nan)),
        .ahead = CODE_PREFETCH_BYTES,
    };
}

/* divide: 1 / scale if BY_RECIPROCAL. */
struct NATIVE(lane_qparams) {
    f32x16 divide, scale, zero_point_add, zero_point_sub;
};

ALWAYS_INLINE f32x16 NATIVE(lanes_native)(int how, f32x16 v) { return how & IN_FLOAT ? v : lanes_round(v); }

ALWAYS_INLINE f32x16 NATIVE(lanes_clamped)(const struct NATIVE(lane_constants) * c, f32x16 v)
{
    return f32x16_lower(f32x16_raise(v, c->quant_min), c->quant_max);
}

/* v, not in the middle of two numbers of BF16 and below 2^111, rounded to BF16; Veltkamp's splitting. */
ALWAYS_INLINE f32x16 NATIVE(lanes_split)(f32x16 v)
{
    const f32x16 wide = f32x16_mul(v, f32x16_splat(0x1.0001p16f));
    return f32x16_sub(wide, f32x16_sub(wide, v));
}

/* The same for any v that is no subnormal; infinity and NaN stay. */
ALWAYS_INLINE f32x16 NATIVE(lanes_near)(f32x16 v)
{
    const f32x16 half = f32x16_splat(float_of_bits(0x8000)), high = f32x16_splat(float_of_bits(0xffff0000));
    return f32x16_and(f32x16_add_bits(v, half), high);
}

/* x / scale + zero point, clamped; the operations of NATIVE(scaled). The limits are numbers of the dtype, so that
 * clamping may come before rounding. A sum of a BF16 and a zero point in the middle of two numbers of BF16 ends with
 * zeros, so that splitting rounds it to even. */
REFERENCE_INLINE f32x16 NATIVE(lanes_scaled)(const struct NATIVE(lane_constants) * c, int how, f32x16 x,
                                             const struct NATIVE(lane_qparams) * p)
{
    if (how & BY_RECIPROCAL) {
        const f32x16 quotient = NATIVE(lanes_near)(f32x16_mul(x, p->divide));
        return how & ZERO_POINT ? NATIVE(lanes_split)(NATIVE(lanes_clamped)(c, f32x16_add(quotient, p->zero_point_add)))
                                : NATIVE(lanes_clamped)(c, quotient);
    }
    f32x16 v = NATIVE(lanes_native)(how, f32x16_div(x, p->divide));
    if (how & ZERO_POINT)
        v = NATIVE(lanes_native)(how, f32x16_add(v, p->zero_point_add));
    return NATIVE(lanes_clamped)(c, v);
}

/* The codes of v in the low bytes of the lanes, and the numbers that they stand for. The sum of v and a power of two
 * rounds to the steps of v. Its last digits are those of the number, with the one that a code leaves out. The exponent
 * of the smallest normal numbers is that of subnormal ones too, and a carry out of the digits is right in a code. */
REFERENCE_INLINE f32x16 NATIVE(lanes_code)(const struct NATIVE(lane_constants) * c, int kind, f32x16 v, f32x16 *number)
{
    if (kind == QOBS_CODE_INTEGER) {
        const f32x16 shifter = f32x16_splat(0x1.8p23f), sum = f32x16_add(v, shifter);
        *number = f32x16_sub(sum, shifter);
        /* The low bits of a BF16 or F16 that is NaN are 0. */
        return IS_SINGLE ? f32x16_if_number(v, sum, c->nan) : sum;
    }
    const f32x16 power = f32x16_max_bits(f32x16_and(v, c->exponent), c->min_normal);
    const f32x16 shifter = f32x16_copy_sign(f32x16_add_bits(power, c->digits), v), sum = f32x16_add(v, shifter);
    *number = f32x16_sub(sum, shifter);
    const f32x16 exponent = kind == QOBS_CODE_E2M1 ? f32x16_shift_right(power, 22) : f32x16_shift_right(power, 20);
    const f32x16 magnitude = f32x16_add_bits(f32x16_sub_bits(sum, shifter), f32x16_sub_bits(exponent, c->least));
    const f32x16 sign = kind == QOBS_CODE_E2M1   ? f32x16_if_negative(v, c->sign)
                        : kind == QOBS_CODE_E2M3 ? f32x16_and(f32x16_shift_right(v, 26), c->sign)
                                                 : f32x16_and(f32x16_shift_right(v, 24), c->sign);
    return f32x16_if_number(v, f32x16_or(magnitude, sign), c->nan);
}

/* number * scale, rounded to the dtype. With BY_RECIPROCAL both have at most 8 binary digits and their product at most
 * 16. Veltkamp's splitting rounds ties to even if the last of a float's 24 digits is 0, which it is then. */
ALWAYS_INLINE f32x16 NATIVE(lanes_product)(int how, f32x16 number, f32x16 scale)
{
    const f32x16 product = f32x16_mul(number, scale);
    return how & BY_RECIPROCAL ? NATIVE(lanes_split)(product) : lanes_round(product);
}

/* x - dequantized number, with one rounding for each operation of NATIVE(dequantize) and one for the difference. */
ALWAYS_INLINE f32x16 NATIVE(lanes_error)(int how, f32x16 x, f32x16 number, const struct NATIVE(lane_qparams) * p)
{
    if (how & ZERO_POINT)
        number = NATIVE(lanes_native)(how, f32x16_sub(number, p->zero_point_sub));
    return f32x16_sub(x, NATIVE(lanes_product)(how, number, p->scale));
}

/* At most 16 elements. Those that are missing count as 0 in the sums, whatever their code is. */
REFERENCE_INLINE void NATIVE(lanes_step)(const struct NATIVE(lane_constants) * c, int how, int kind,
                                         const element *from, unsigned char *to, size_t left,
                                         const struct NATIVE(lane_qparams) * p, struct code_sums *sums)
{
    element few[16];
    unsigned char bytes[16];
    if (left < 16) {
        memset(few, 0, sizeof few);
        memcpy(few, from, left * sizeof *few);
    }
    __builtin_prefetch((const unsigned char *)from + c->ahead);
    const f32x16 x = lanes_load(left < 16 ? few : from);
    f32x16 number;
    const f32x16 code = NATIVE(lanes_code)(c, kind, NATIVE(lanes_scaled)(c, how, x, p), &number);
    f32x16_store_bytes(left < 16 ? bytes : to, code);
    if (how & WITH_SUM) {
        f32x16 error = NATIVE(lanes_error)(how, x, number, p);
        if (left < 16)
            error = f32x16_and(error, f32x16_load(first_lanes + 16 - left));
        code_sums_add(sums, error, x);
    }
    if (left < 16)
        memcpy(to, bytes, left);
}

REFERENCE_INLINE void NATIVE(lanes_run)(const struct NATIVE(lane_constants) * c, int how, int kind, const element *from,
                                        unsigned char *to, size_t length, const struct NATIVE(lane_qparams) * p,
                                        struct code_sums *sums)
{
    for (size_t j = 0; j < length; j += 16)
        NATIVE(lanes_step)(c, how, kind, from + j, to + j, length - j, p, sums);
}

/* A bf16 quotient x / scale may be computed as x * (1 / scale) in float. Both have the same rounding to bf16: a
 * quotient of numbers of 8 digits is never in the middle of two numbers of 8 digits, because the middle has 9 digits
 * and so has its product with scale; it is at least 2^-17 away from it, and the error of the product is below 2^-22.
 * Quotients that are subnormal are exempt; their codes depend on the sign alone, which must not become that of 0. */
ALWAYS_INLINE bool NATIVE(may_multiply)(int how, int kind, real scale)
{
    const uint32_t magnitude = bits_of_float(scale) & 0x7fffffff;
    const uint32_t most = kind == QOBS_CODE_INTEGER ? (127 + 100) << 23 : 127 << 23;
    const bool in_range = magnitude >= (127 - 100) << 23 && magnitude <= most;
    return in_range && MANTISSA_BITS == 7 && !(how & IN_FLOAT);
}

/* Runs of one scale each, as QOBS_QUANTIZE_ROWS has them. */
struct NATIVE(code_runs) {
    const unsigned char *x;
    unsigned char *codes;
    ptrdiff_t x_stride, code_stride, qparam_stride;
    size_t count, length;
    struct qparam_pair qparams;
};

/* The runs behind the first `count`. */
ALWAYS_INLINE struct NATIVE(code_runs) NATIVE(runs_behind)(struct NATIVE(code_runs) r, size_t count)
{
    const ptrdiff_t n = (ptrdiff_t)count, at = n * r.qparam_stride;
    const real *scale = r.qparams.scale, *add = r.qparams.zero_point_add, *sub = r.qparams.zero_point_sub;
    r.x += n * r.x_stride;
    r.codes += n * r.code_stride;
    r.count -= count;
    r.qparams = (struct qparam_pair){scale + at, add ? add + at : NULL, sub ? sub + at : NULL};
    return r;
}

/* The elements from `first` on of the first run. */
ALWAYS_INLINE void NATIVE(lanes_one_run)(const struct NATIVE(lane_constants) * c, int how, int kind,
                                         const struct NATIVE(code_runs) * r, size_t first, struct code_sums *sums)
{
    const real s = *(const real *)r->qparams.scale;
    const element *from = (const element *)r->x + first;
    struct NATIVE(lane_qparams) p = {.scale = f32x16_splat(s), .divide = f32x16_splat(s)};
    if (how & ZERO_POINT) {
        p.zero_point_add = f32x16_splat(*(const real *)r->qparams.zero_point_add);
        p.zero_point_sub = f32x16_splat(how & WITH_SUM ? *(const real *)r->qparams.zero_point_sub : 0);
    }
    if (NATIVE(may_multiply)(how, kind, s)) {
        p.divide = f32x16_splat(1 / s);
        NATIVE(lanes_run)(c, how | BY_RECIPROCAL, kind, from, r->codes + first, r->length - first, &p, sums);
    } else {
        NATIVE(lanes_run)(c, how, kind, from, r->codes + first, r->length - first, &p, sums);
    }
}

/* Rows of a table of paths to codes, in the order in which they are tried: name, kinds of code as bits, and what the
 * arithmetic must not have. A path quantizes the first of some runs and returns how many; 0: it does not fit. */
#if MANTISSA_BITS == 7
#include "templates/codes_bf16.inl.h"
#define CODE_PATHS BF16_CODE_PATHS
#else
#define CODE_PATHS(PATH)
#endif
#define TRY_PATH(name, kinds, lacks)                                                                                   \
    if (done == 0 && (kinds) >> kind & 1 && !(how & (lacks)))                                                          \
        done = NATIVE(name##_path)(q, &c, how, kind, &r, &sums);

ALWAYS_INLINE void NATIVE(lanes_rows)(const struct NATIVE(quantizer) * q, int how, int kind, const unsigned char *x,
                                      ptrdiff_t x_stride, unsigned char *codes, ptrdiff_t code_stride, size_t runs,
                                      size_t length, const struct qparam_pair *qparams, ptrdiff_t qparam_stride,
                                      double *sum)
{
    struct NATIVE(lane_constants) c = NATIVE(lanes_constants)(q, kind);
    struct code_sums sums = code_sums_of(sum);
    c.ahead = code_prefetch_bytes(q->next_rows, runs, x_stride);
    struct NATIVE(code_runs) r = {x, codes, x_stride, code_stride, qparam_stride, runs, length, *qparams};
    while (r.count > 0) {
        size_t done = 0;
        CODE_PATHS(TRY_PATH)
        if (done == 0) {
            NATIVE(lanes_one_run)(&c, how, kind, &r, 0, &sums);
            done = 1;
        }
        r = NATIVE(runs_behind)(r, done);
    }
    if (how & WITH_SUM)
        code_sums_flush(&sums);
}
#undef TRY_PATH
#undef CODE_PATHS

/* The qparams of at most 16 columns. */
ALWAYS_INLINE struct NATIVE(lane_qparams)
    NATIVE(lanes_of_columns)(int how, const struct qparam_pair *qparams, size_t first, size_t left)
{
    const real *arrays[] = {qparams->scale, qparams->zero_point_add,
                            how & WITH_SUM ? qparams->zero_point_sub : qparams->zero_point_add};
    float few[3][16] = {{0}};
    f32x16 lanes[3];
    for (int k = 0; k < 3; k++) {
        if (left < 16)
            memcpy(few[k], arrays[k] + first, left * sizeof **few);
        lanes[k] = f32x16_load(left < 16 ? few[k] : arrays[k] + first);
    }
    return (struct NATIVE(lane_qparams)){lanes[0], lanes[0], lanes[1], lanes[2]};
}

ALWAYS_INLINE void NATIVE(lanes_columns)(const struct NATIVE(quantizer) * q, int how, int kind, const unsigned char *x,
                                         ptrdiff_t x_stride, unsigned char *codes, ptrdiff_t code_stride, size_t rows,
                                         size_t columns, const struct qparam_pair *qparams, double *sum)
{
    const struct NATIVE(lane_constants) c = NATIVE(lanes_constants)(q, kind);
    struct code_sums sums = code_sums_of(sum);
    for (ptrdiff_t i = 0; i < (ptrdiff_t)rows; i++) {
        const element *from = (const element *)(x + i * x_stride);
        unsigned char *to = codes + i * code_stride;
        for (size_t j = 0; j < columns; j += 16) {
            const struct NATIVE(lane_qparams) p = NATIVE(lanes_of_columns)(how, qparams, j, columns - j);
            NATIVE(lanes_step)(&c, how, kind, from + j, to + j, columns - j, &p, &sums);
        }
    }
    if (how & WITH_SUM)
        code_sums_flush(&sums);
}

/* Fills q and returns the variant. The grid is that of the kind of code, and its limits are numbers of the dtype. */
static int NATIVE(prepare_codes)(struct NATIVE(quantizer) * q, const struct quantizer *quantizer, bool has_zero_point,
                                 bool with_sum)
{
    q->quant_min = (real)quantizer->quant_min;
    q->quant_max = (real)quantizer->quant_max;
    q->next_rows = quantizer->next_rows;
    q->saturates = quantizer->bounded && q->quant_min == -128 && q->quant_max == 127;
    return (has_zero_point ? ZERO_POINT : 0) | (quantizer->in_float && !IS_SINGLE ? IN_FLOAT : 0) |
           (with_sum ? WITH_SUM : 0);
}

/* The variants: kind, arithmetic, and a name for its functions. Each has functions of its own, which compilers optimise
 * better than one with all loops. E2M3, which no runtime has kernels for yet, takes its arithmetic at run time: as
 * variants it added 82 KB to the library of all x86 sets. */
#define EACH_CODE_HOW(CODE, kind, how, name)                                                                           \
    CODE(kind, how, name)                                                                                              \
    CODE(kind, (how) | ZERO_POINT, name##_shifted)                                                                     \
    CODE(kind, (how) | WITH_SUM, name##_sum)                                                                           \
    CODE(kind, (how) | ZERO_POINT | WITH_SUM, name##_shifted_sum)
#if MANTISSA_BITS == 23
#define EACH_CODE_KIND(CODE, kind, name) EACH_CODE_HOW(CODE, kind, 0, name)
#else
#define EACH_CODE_KIND(CODE, kind, name)                                                                               \
    EACH_CODE_HOW(CODE, kind, 0, name) EACH_CODE_HOW(CODE, kind, IN_FLOAT, name##_in_float)
#endif
#define EACH_CODE(CODE)                                                                                                \
    EACH_CODE_KIND(CODE, QOBS_CODE_INTEGER, integer)                                                                   \
    EACH_CODE_KIND(CODE, QOBS_CODE_E4M3, e4m3)                                                                         \
    EACH_CODE_KIND(CODE, QOBS_CODE_E2M1, e2m1)

#define CODE(kind, how, name)                                                                                          \
    static __attribute__((noinline)) void NATIVE(code_rows_##name)(                                                    \
        const struct NATIVE(quantizer) * q, const unsigned char *x, ptrdiff_t x_stride, unsigned char *codes,          \
        ptrdiff_t code_stride, size_t runs, size_t length, const struct qparam_pair *qparams, ptrdiff_t qparam_stride, \
        double *sum)                                                                                                   \
    {                                                                                                                  \
        NATIVE(lanes_rows)                                                                                             \
        (q, how, kind, x, x_stride, codes, code_stride, runs, length, qparams, qparam_stride, sum);                    \
    }
EACH_CODE(CODE)
#undef CODE

static __attribute__((noinline)) void NATIVE(code_rows_e2m3)(const struct NATIVE(quantizer) * q, int how,
                                                             const unsigned char *x, ptrdiff_t x_stride,
                                                             unsigned char *codes, ptrdiff_t code_stride, size_t runs,
                                                             size_t length, const struct qparam_pair *qparams,
                                                             ptrdiff_t qparam_stride, double *sum)
{
    NATIVE(lanes_rows)
    (q, how, QOBS_CODE_E2M3, x, x_stride, codes, code_stride, runs, length, qparams, qparam_stride, sum);
}

QOBS_QUANTIZE_ROWS(ENTRY(NATIVE(qobs_quantize_rows)))
{
    CLEARS_UPPER_HALVES
    struct NATIVE(quantizer) q;
    const int how = NATIVE(prepare_codes)(&q, quantizer, qparams->zero_point_add != NULL, sum != NULL);
    if (kind == QOBS_CODE_E2M3) {
        NATIVE(code_rows_e2m3)
        (&q, how, x, x_stride, codes, code_stride, runs, length, qparams, qparam_stride, sum);
        return;
    }
#define CODE(wanted, variant, name)                                                                                    \
    if (kind == (wanted) && how == (variant))                                                                          \
        NATIVE(code_rows_##name)                                                                                       \
    (&q, x, x_stride, codes, code_stride, runs, length, qparams, qparam_stride, sum);                                  \
    else
    EACH_CODE(CODE) NO_VARIANT;
#undef CODE
}

/* Columns always have a zero point. */
#define CODE(kind, how, name)                                                                                          \
    static __attribute__((noinline)) void NATIVE(code_columns_##name)(                                                 \
        const struct NATIVE(quantizer) * q, const unsigned char *x, ptrdiff_t x_stride, unsigned char *codes,          \
        ptrdiff_t code_stride, size_t rows, size_t columns, const struct qparam_pair *qparams, double *sum)            \
    {                                                                                                                  \
        if ((how)&ZERO_POINT)                                                                                          \
            NATIVE(lanes_columns)(q, how, kind, x, x_stride, codes, code_stride, rows, columns, qparams, sum);         \
    }
EACH_CODE(CODE)
#undef CODE

static __attribute__((noinline)) void NATIVE(code_columns_e2m3)(const struct NATIVE(quantizer) * q, int how,
                                                                const unsigned char *x, ptrdiff_t x_stride,
                                                                unsigned char *codes, ptrdiff_t code_stride,
                                                                size_t rows, size_t columns,
                                                                const struct qparam_pair *qparams, double *sum)
{
    NATIVE(lanes_columns)
    (q, how, QOBS_CODE_E2M3, x, x_stride, codes, code_stride, rows, columns, qparams, sum);
}

QOBS_QUANTIZE_COLUMNS(ENTRY(NATIVE(qobs_quantize_columns)))
{
    CLEARS_UPPER_HALVES
    struct NATIVE(quantizer) q;
    const int how = NATIVE(prepare_codes)(&q, quantizer, true, sum != NULL);
    if (kind == QOBS_CODE_E2M3) {
        NATIVE(code_columns_e2m3)
        (&q, how, x, x_stride, codes, code_stride, rows, columns, qparams, sum);
        return;
    }
#define CODE(wanted, variant, name)                                                                                    \
    if (kind == (wanted) && how == (variant))                                                                          \
        NATIVE(code_columns_##name)(&q, x, x_stride, codes, code_stride, rows, columns, qparams, sum);                 \
    else
    EACH_CODE(CODE) NO_VARIANT;
#undef CODE
}

#undef EACH_CODE
#undef EACH_CODE_KIND
#undef EACH_CODE_HOW
