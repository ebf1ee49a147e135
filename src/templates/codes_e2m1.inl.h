/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantizes BF16 to e2m1 by comparisons instead of divisions; included by codes_lanes.inl.h, whose contract holds, for
 * instruction sets that define CODE_THRESHOLDS. A code is the number of thresholds that |x| exceeds: the smallest
 * quotients that become 0.5, 1, 1.5, 2, 3, 4 and 6, times the scale. A threshold is the largest BF16 whose quotient,
 * rounded as the arithmetic does, is still below. So it is exact, and BF16 are compared as integers of 16 bits.
 *
 * Limits: scales from 2^-100 to 2^16, without IN_FLOAT to 1. Then thresholds are normal numbers, and no quotient but
 * that of 0 is 0. */

#ifdef I16X32                 /* two runs in a vector; simd.h */
enum { THRESHOLD_RUNS = 16 }; /* of a u32_runs */
#else
enum { THRESHOLD_RUNS = 8 };
#endif
enum { THRESHOLD_LANES = 16, STEP = 1 << 7 }; /* of an i16x16; of exponents */

typedef uint32_t u32_runs __attribute__((vector_size(4 * THRESHOLD_RUNS)));
typedef int32_t i32_runs __attribute__((vector_size(4 * THRESHOLD_RUNS)));
typedef float f32_runs __attribute__((vector_size(4 * THRESHOLD_RUNS)));

/* Thresholds of THRESHOLD_RUNS runs, each number twice, as two lanes. t025, t075: those of the quotients 0.25 and 0.75.
 * Adding STEP to a BF16 doubles it. So the thresholds of 1.25, 2.5 and 5 are a STEP apart, and those of 1.75 and 3.5.
 * t125, t175: the first of each, minus STEP - 1; a magnitude exceeds as many as it is STEPs above. most: magnitudes
 * above it have the code of `most`, which exceeds 3 and 2. */
struct thresholds {
    u32_runs t025, t075, t125, t175, most;
};

/* The BF16 at or below q quarters of the last digit of a number with the exponent field `exponent`, twice. The low 8
 * bits of q are below the last digit of the result. */
ALWAYS_INLINE u32_runs threshold_of(u32_runs q, u32_runs exponent, uint32_t less)
{
    const f32_runs number = __builtin_convertvector((i32_runs)(q & ~255u), f32_runs);
    const u32_runs bits = ((u32_runs)number >> 16) + ((exponent - 152) << 7) - less;
    return bits | bits << 16;
}

ALWAYS_INLINE bool u32_runs_all_zero(u32_runs a)
{
    uint64_t parts[THRESHOLD_RUNS / 2], any = 0;
#ifdef I16X32
    if (sizeof a == sizeof(i16x32))
        return i16x32_all_zero((i16x32)a);
#endif
    memcpy(parts, &a, sizeof parts);
    for (size_t i = 0; i < THRESHOLD_RUNS / 2; i++)
        any |= parts[i];
    return any == 0;
}

/* The limits at the top of this file. */
ALWAYS_INLINE bool are_in_limits(int how, const float scale[THRESHOLD_RUNS])
{
    const uint32_t least = 27u << 23, most = how & IN_FLOAT ? 143u << 23 : 127u << 23;
    u32_runs bits;
    memcpy(&bits, scale, sizeof bits);
    return u32_runs_all_zero((u32_runs)((bits < least) | (bits > most)));
}

/* The quotient 1.25 becomes 1, so that the threshold is 1.25 and half of its last digit, times the scale; 1.75 becomes
 * 2 and is half a digit too much. */
ALWAYS_INLINE void make_thresholds(struct thresholds *t, int how, const float scale[THRESHOLD_RUNS])
{
    const int half = how & IN_FLOAT ? 22 : 6; /* quarters of the scale's last digits in half a digit of 1, as a shift */
    u32_runs bits;
    memcpy(&bits, scale, sizeof bits);
    const u32_runs exponent = bits >> 23, s = (bits & 0x7fffff) | 0x800000;
    t->t025 = threshold_of(s + (s >> (half + 2)), exponent, 0);
    t->t075 = threshold_of(3 * s - (s >> (half + 1)) - 1, exponent, 0);
    t->t125 = threshold_of(5 * s + (s >> half), exponent, STEP - 1);
    t->most = t->t125 + 3 * STEP * 0x10001;
    t->t175 = threshold_of(7 * s - (s >> half) - 1, exponent, STEP - 1);
}

#ifdef I16X32
ALWAYS_INLINE bool are_powers_of_2(const float scale[THRESHOLD_RUNS])
{
    u32_runs bits;
    memcpy(&bits, scale, sizeof bits);
    return u32_runs_all_zero(bits << 9);
}
#endif

ALWAYS_INLINE i16x16 threshold_lanes(const u32_runs *t, size_t run)
{
    return (i16x16)((u32x8){0} + ((const uint32_t *)t)[run]);
}

ALWAYS_INLINE u16x16 threshold_codes(const struct thresholds *t, size_t run, const uint16_t *from)
{
    u16x16 x;
    memcpy(&x, from, sizeof x);
    i16x16 magnitude = (i16x16)(x & 0x7fff);
    magnitude &= ~(magnitude > 0x7f80); /* NaN: the code of +0 */
    const i16x16 limited = i16x16_min(magnitude, threshold_lanes(&t->most, run));
    const i16x16 large = (i16x16_excess(limited, threshold_lanes(&t->t125, run)) >> 7) +
                         (i16x16_excess(limited, threshold_lanes(&t->t175, run)) >> 7);
    const i16x16 small = (magnitude > threshold_lanes(&t->t025, run)) + (magnitude > threshold_lanes(&t->t075, run));
    const i16x16 sign = (magnitude > 0) & (i16x16)(x >> 12) & 8;
    return (u16x16)((large - small) | sign);
}

#ifdef I16X32
/* The codes of two vectors of THRESHOLD_LANES; the low and the high half of `runs` are numbers of runs. Magnitudes may
 * be any number of STEPs above t125 and t175; the sum is limited. */
ALWAYS_INLINE i16x32 threshold_codes_2(const struct thresholds *t, i16x32 runs, const uint16_t *from)
{
    i16x32 x;
    memcpy(&x, from, sizeof x);
    const i16x32 magnitude = x & 0x7fff;
    const i16x32_mask some = i16x32_above(i16x32_splat(0x7f80), magnitude - 1); /* neither 0 nor NaN */
    const i16x32 large = i16x32_shift_right(i16x32_excess(magnitude, i16x32_pick((i16x32)t->t125, runs)), 7) +
                         i16x32_shift_right(i16x32_excess(magnitude, i16x32_pick((i16x32)t->t175, runs)), 7);
    i16x32 code = i16x32_if(some, i16x32_min(large, i16x32_splat(5)));
    code = i16x32_add_if(some & i16x32_above(magnitude, i16x32_pick((i16x32)t->t025, runs)), code, i16x32_splat(1));
    code = i16x32_add_if(some & i16x32_above(magnitude, i16x32_pick((i16x32)t->t075, runs)), code, i16x32_splat(1));
    return (i16x32_if(some, i16x32_shift_right(x, 12)) & 8) | code;
}

/* THRESHOLD_RUNS runs of THRESHOLD_LANES << doubled elements, one after another, in x and in codes. */
ALWAYS_INLINE void threshold_rows_2(const struct thresholds *t, int doubled, ptrdiff_t ahead, const uint16_t *from,
                                    unsigned char *to)
{
    enum { PAIR = 2 * THRESHOLD_LANES };
    for (int i = 0; i < THRESHOLD_RUNS << doubled; i += 4) {
        const size_t at = (size_t)i * THRESHOLD_LANES;
        __builtin_prefetch((const unsigned char *)(from + at) + ahead);
        __builtin_prefetch((const unsigned char *)(from + at) + ahead + 64);
        const i16x32 first = i16x32_halves(i >> doubled, (i + 1) >> doubled);
        const i16x32 second = i16x32_halves((i + 2) >> doubled, (i + 3) >> doubled);
        i16x32_store_bytes(to + at, threshold_codes_2(t, first, from + at),
                           threshold_codes_2(t, second, from + at + PAIR));
    }
}
#endif

#ifdef I16X32
/* The same as threshold_rows_2 for runs of two vectors and scales that are powers of two. All have the same thresholds
 * as distances in BF16 from a quarter of the scale: 1, 192, 289, 352, 417, 480, 545. A bucket of 32 distances has at
 * most one. Its entry and the distance add up to 32 times the code, and less than 32. */
ALWAYS_INLINE void threshold_rows_by_power(const float scale[THRESHOLD_RUNS], ptrdiff_t ahead, const uint16_t *from,
                                           unsigned char *to)
{
    enum { BUCKET = 5, LAST = (32 << BUCKET) - 1 };
    const i16x32 entries = {
        31, 0, -32, -64, -96, -128, -128, -160, -192, -193, -224, -224, -256, -257, -288, -288, -320, -321,
        -352, -384, -416, -448, -480, -512, -544, -576, -608, -640, -672, -704, -736, -768};
    for (size_t i = 0; i < THRESHOLD_RUNS; i += 2) {
        i16x32 code[2];
        for (size_t k = 0; k < 2; k++) {
            uint32_t bits;
            i16x32 x;
            memcpy(&bits, scale + i + k, sizeof bits);
            memcpy(&x, from + (i + k) * sizeof x / 2, sizeof x);
            __builtin_prefetch((const unsigned char *)(from + (i + k) * sizeof x / 2) + ahead);
            const i16x32 magnitude = x & 0x7fff, quarter = i16x32_splat((int16_t)((bits >> 16) - 2 * STEP));
            const i16x32_mask some = i16x32_above(i16x32_splat(0x7f80), magnitude - 1); /* neither 0 nor NaN */
            const i16x32 distance = i16x32_min(i16x32_excess(magnitude, quarter), i16x32_splat(LAST));
            const i16x32 sum = i16x32_permute(entries, i16x32_shift_right(distance, BUCKET)) + distance;
            code[k] = i16x32_if(some, (i16x32_shift_right(x, 12) & 8) | i16x32_shift_right(sum, BUCKET));
        }
        i16x32_store_bytes(to + i * sizeof *code / 2, code[0], code[1]);
    }
}
#endif

ALWAYS_INLINE void threshold_rows_1(const struct thresholds *t, ptrdiff_t ahead, const unsigned char *x,
                                    ptrdiff_t x_stride, unsigned char *codes, ptrdiff_t code_stride, size_t runs,
                                    size_t length)
{
    for (size_t i = 0; i < runs; i++) {
        const uint16_t *from = (const uint16_t *)(x + (ptrdiff_t)i * x_stride);
        unsigned char *to = codes + (ptrdiff_t)i * code_stride;
        for (size_t j = 0; j < length; j += THRESHOLD_LANES) {
            __builtin_prefetch((const unsigned char *)(from + j) + ahead);
            const u8x16 bytes = __builtin_convertvector(threshold_codes(t, i, from + j), u8x16);
            memcpy(to + j, &bytes, sizeof bytes);
        }
    }
}

/* Adds up the errors of runs from their codes. It is a loop of its own because loads of codes that were just stored
 * wait for the stores. */
ALWAYS_INLINE void threshold_errors(int how, const unsigned char *x, ptrdiff_t x_stride, const unsigned char *codes,
                                    ptrdiff_t code_stride, size_t runs, size_t length, const float *scale,
                                    struct code_sums *sums)
{
    const int product = how & IN_FLOAT ? how : how | BY_RECIPROCAL;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++) {
        const f32x16 run_scale = f32x16_splat(scale[i]);
        for (ptrdiff_t j = 0; j < (ptrdiff_t)length; j += THRESHOLD_LANES) {
            const f32x16 value = f32x16_load_bf16(x + i * x_stride + 2 * j);
            const f32x16 number = f32x16_load_e2m1(codes + i * code_stride + j);
            code_sums_add(sums, f32x16_sub(value, NATIVE(lanes_product)(product, number, run_scale)), value);
        }
    }
}

/* Runs of full vectors. Returns how many it has quantized: all of THRESHOLD_RUNS or `runs`, or none. */
ALWAYS_INLINE size_t threshold_rows(int how, const unsigned char *x, ptrdiff_t x_stride, unsigned char *codes,
                                    ptrdiff_t code_stride, size_t runs, size_t length, const float *scale,
                                    ptrdiff_t qparam_stride, ptrdiff_t ahead, struct code_sums *sums)
{
    float scales[THRESHOLD_RUNS];
    struct thresholds t;
    runs = runs < THRESHOLD_RUNS ? runs : THRESHOLD_RUNS;
    if (runs < THRESHOLD_RUNS || qparam_stride != 1) { /* a load of single stores just made would wait for them */
        for (size_t i = 0; i < THRESHOLD_RUNS; i++)
            scales[i] = i < runs ? scale[(ptrdiff_t)i * qparam_stride] : 1;
        scale = scales;
    }
    if (length % THRESHOLD_LANES != 0 || !are_in_limits(how, scale))
        return 0;
#ifdef I16X32
    const bool in_line =
        runs == THRESHOLD_RUNS && x_stride == 2 * (ptrdiff_t)length && code_stride == (ptrdiff_t)length;
    if (in_line && length == 2 * THRESHOLD_LANES && are_powers_of_2(scale)) {
        threshold_rows_by_power(scale, ahead, (const uint16_t *)x, codes);
    } else {
        make_thresholds(&t, how, scale);
        if (in_line && length == THRESHOLD_LANES)
            threshold_rows_2(&t, 0, ahead, (const uint16_t *)x, codes);
        else if (in_line && length == 2 * THRESHOLD_LANES)
            threshold_rows_2(&t, 1, ahead, (const uint16_t *)x, codes);
        else
            threshold_rows_1(&t, ahead, x, x_stride, codes, code_stride, runs, length);
    }
#else
    make_thresholds(&t, how, scale);
    threshold_rows_1(&t, ahead, x, x_stride, codes, code_stride, runs, length);
#endif
    if (how & WITH_SUM)
        threshold_errors(how, x, x_stride, codes, code_stride, runs, length, scale, sums);
    return runs;
}
