/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantizes BF16 to int4 and e4m3 by tables instead of divisions; included by codes_lanes.inl.h, whose contract holds,
 * if there are vectors of 32 words.
 *
 * The code of |x| / scale grows with the bits of |x|. It becomes c from a threshold on, a BF16. Doubling the scale adds
 * STEP to each threshold, so that 128 tables, one for each significand, serve all scales. An entry is for a bucket of
 * neighbouring BF16 with at most one threshold. The sum of entry and distance from the first BF16 of the table has the
 * code in its bits from 4 on.
 *
 * Limits: scales are BF16 from 2^-100 to 2^100, quotients are rounded to BF16, there are no zero points. Int4 is -8 to
 * 7, e4m3 is -448 to 448. Lanes whose code is not in the table are reported. */
#include <stdatomic.h>

enum {
    TABLES = 128,
    ENTRIES = 32,
    SMALL_BUCKET = 4, /* BF16 in a bucket, as a shift: four binades have 512 */
    SMALL_LAST = ENTRIES * 16 - 1,
    E4M3_BUCKET = 3 /* a binade has 128 BF16, and all binades have the same entries */
};

struct code_table {
    _Alignas(64) int16_t small[ENTRIES];
    int16_t e4m3[ENTRIES];
    int16_t small_origin, e4m3_origin; /* bits of the BF16 at distance 0 for scales from 1 to 2 */
    int16_t e4m3_most;                 /* distance of 448 */
};

static struct code_table code_tables[TABLES];
static atomic_int code_tables_state;

/* The least BF16 x whose x / scale, rounded to BF16, is at least the BF16 `quotient`. All three are bits. The middle of
 * two BF16 has 9 digits and its product with scale 17. No x is equal to it: the quotient would have 9 digits. */
static int code_threshold(uint32_t scale, uint32_t quotient)
{
    const float middle = (float_of_bits((quotient - 1) << 16) + float_of_bits(quotient << 16)) / 2;
    return (int)(bits_of_float(middle * float_of_bits(scale << 16)) >> 16) + 1;
}

/* The threshold of a code whose predecessor is as far below `middle` as the code is above. Ties go to even codes. */
static int tie_threshold(uint32_t scale, int code, float middle)
{
    return code_threshold(scale, (bits_of_float(middle) >> 16) + (code & 1));
}

static void make_small_table(struct code_table *t, uint32_t scale)
{
    enum { BUCKET = 1 << SMALL_BUCKET };
    t->small_origin = (int16_t)(tie_threshold(scale, 1, 0.5f) - 1);
    for (int b = 0; b < ENTRIES; b++) {
        int sum = 0;
        for (int code = 1; code <= 8; code++) {
            const int above = BUCKET * (b + 1) - (tie_threshold(scale, code, (float)code - 0.5f) - t->small_origin);
            sum += above < 0 ? 0 : above < BUCKET ? above : BUCKET;
        }
        t->small[b] = (int16_t)(sum - BUCKET * b);
    }
}

/* The number in the middle between a normal e4m3 and the one below it. */
static float e4m3_middle(int code) { return ldexpf(8 + (float)((code - 1) % 8) + 0.5f, (code - 1) / 8 - 10); }

/* Codes 8 to 15 are those of the first binade of normal numbers. Distance 0 is half the threshold of 16: the threshold
 * of 8 is lower, because subnormal numbers below it are further apart than those below 16. */
static void make_e4m3_table(struct code_table *t, uint32_t scale)
{
    enum { BUCKET = 1 << E4M3_BUCKET, FIRST = 8 };
    const int origin = tie_threshold(scale, 16, e4m3_middle(16)) - STEP;
    t->e4m3_origin = (int16_t)origin;
    t->e4m3_most = (int16_t)(tie_threshold(scale, 126, e4m3_middle(126)) - origin);
    for (int i = 0; i < ENTRIES; i++) {
        const int bucket = BUCKET * (i % (STEP / BUCKET));
        int code = FIRST, next = STEP;
        while ((next = tie_threshold(scale, code + 1, e4m3_middle(code + 1)) - origin) <= bucket)
            code++;
        const int below = next - bucket < BUCKET ? next - bucket : BUCKET;
        t->e4m3[i] = (int16_t)(16 * (code + 1) - below - bucket);
    }
}

/* Makes the tables once. False while another thread makes them. */
static __attribute__((noinline)) bool code_tables_made(void)
{
    enum { MISSING, IN_WORK, MADE };
    int state = atomic_load_explicit(&code_tables_state, memory_order_acquire);
    if (state == MISSING && atomic_compare_exchange_strong(&code_tables_state, &state, IN_WORK)) {
        for (uint32_t i = 0; i < TABLES; i++) {
            make_small_table(&code_tables[i], 127 * STEP + i);
            make_e4m3_table(&code_tables[i], 127 * STEP + i);
        }
        atomic_store_explicit(&code_tables_state, state = MADE, memory_order_release);
    }
    return state == MADE;
}

enum { TABLE_PAIRS_STEP = 128 }; /* elements of table_pairs */

/* Whether there are tables for codes between the limits. */
ALWAYS_INLINE bool has_table(int kind, float quant_min, float quant_max)
{
    const float most = kind == QOBS_CODE_INTEGER ? 7 : 448, least = kind == QOBS_CODE_INTEGER ? -8 : -448;
    return kind != QOBS_CODE_E2M1 && quant_min == least && quant_max == most && code_tables_made();
}

/* Whether there is a table for a scale. */
ALWAYS_INLINE bool may_look_up(int kind, float scale)
{
    const float most = kind == QOBS_CODE_INTEGER ? 0x1p100f : 1;
    return scale >= 0x1p-100f && scale <= most;
}

/* Constants of a loop over scales. */
struct table_constants {
    i16x32 magnitude, nan, small_last, fraction, offset;
};

ALWAYS_INLINE struct table_constants table_constants(void)
{
    return (struct table_constants){
        .magnitude = i16x32_constant(0x7fff),
        .nan = i16x32_constant(0x7f81), /* the first NaN */
        .small_last = i16x32_constant(SMALL_LAST),
        .fraction = i16x32_constant(15),
        .offset = i16x32_constant(8 * 16),
    };
}

/* The tables of one scale. small: of int4 and of the e4m3 up to the first normal one, which are the same multiples of
 * 2^-9. */
struct code_lookup {
    struct table_constants c;
    i16x32 small, small_origin, normal, normal_origin, most;
};

ALWAYS_INLINE struct code_lookup code_lookup_of(const struct table_constants *c, int kind, float scale)
{
    const uint32_t bits = bits_of_float(scale) >> 16;
    const struct code_table *t = &code_tables[bits % TABLES];
    const int binades = (int)(bits / STEP * STEP) - 127 * STEP;
    return (struct code_lookup){
        .c = *c,
        .small = i16x32_load(t->small),
        .small_origin = i16x32_splat((int16_t)(t->small_origin + binades - (kind == QOBS_CODE_E4M3 ? 9 * STEP : 0))),
        .normal = i16x32_load(t->e4m3),
        .normal_origin = i16x32_splat((int16_t)(t->e4m3_origin + binades)),
        .most = i16x32_splat(t->e4m3_most),
    };
}

/* The sum of entry and distance. */
ALWAYS_INLINE i16x32 small_sum(const struct code_lookup *t, i16x32 magnitude)
{
    const i16x32 distance = i16x32_min(i16x32_excess(magnitude, t->small_origin), t->c.small_last);
    return i16x32_permute(t->small, i16x32_shift_right(distance, SMALL_BUCKET)) + distance;
}

/* (15 - sum) >> 4 is -(sum >> 4). */
ALWAYS_INLINE i16x32 int4_codes(const struct code_lookup *t, i16x32 x)
{
    const i16x32 magnitude = x & t->c.magnitude, sum = small_sum(t, magnitude);
    const i16x32 signed_sum = i16x32_sub_if(i16x32_negative(x), sum, t->c.fraction, sum);
    const i16x32_mask number = i16x32_above(t->c.nan, magnitude);
    return i16x32_min(i16x32_if(number, signed_sum >> 4), i16x32_splat(7));
}

/* Codes without signs. *missing: lanes that are NaN or below all normal numbers. */
ALWAYS_INLINE i16x32 e4m3_normal_codes(const struct code_lookup *t, i16x32 x, i16x32_mask *missing)
{
    const i16x32 distance = (x & t->c.magnitude) - t->normal_origin; /* without sign: also large if x is too small */
    *missing = i16x32_above(distance, i16x32_splat(0x7f80) - t->normal_origin);
    const i16x32 limited = i16x32_min(distance, t->most);
    return i16x32_shift_right(i16x32_permute(t->normal, i16x32_shift_right(limited, E4M3_BUCKET)) + limited, 4);
}

/* The codes of the missing lanes, the others as they are. The sign of NaN is cleared. */
ALWAYS_INLINE i16x32 e4m3_other_codes(const struct code_lookup *t, i16x32 *x, i16x32_mask missing, i16x32 code)
{
    const i16x32 magnitude = *x & t->c.magnitude;
    const i16x32_mask number = i16x32_above(t->c.nan, magnitude);
    code = i16x32_choose(~missing, code, i16x32_shift_right(small_sum(t, magnitude), 4));
    *x = i16x32_if(number, *x);
    return i16x32_choose(number, code, i16x32_splat(0x7f));
}

/* The codes of 64 elements. */
ALWAYS_INLINE void table_codes(const struct code_lookup *t, int kind, const uint16_t *from, unsigned char *to)
{
    i16x32 x0 = i16x32_load(from), x1 = i16x32_load(from + 32);
    if (kind == QOBS_CODE_INTEGER) {
        i16x32_store_signed(to, int4_codes(t, x0), int4_codes(t, x1));
        return;
    }
    i16x32_mask missing0, missing1;
    i16x32 code0 = e4m3_normal_codes(t, x0, &missing0), code1 = e4m3_normal_codes(t, x1, &missing1);
    if (missing0 | missing1) {
        code0 = e4m3_other_codes(t, &x0, missing0, code0);
        code1 = e4m3_other_codes(t, &x1, missing1, code1);
    }
    i16x32_store_with_signs(to, code0, code1, x0, x1);
}

/* Returns how many elements it has quantized, a multiple of 64. */
ALWAYS_INLINE size_t table_run(const struct table_constants *c, int kind, const uint16_t *from, unsigned char *to,
                               size_t length, float scale)
{
    const struct code_lookup t = code_lookup_of(c, kind, scale);
    size_t j = 0;
    for (; length - j >= 64; j += 64)
        table_codes(&t, kind, from + j, to + j);
    return j;
}

/* Int4 codes and 8 as words whose high 12 bits they are; 16 stands for 15, to which storing as bytes limits it. */
ALWAYS_INLINE i16x32 int4_words(const struct code_lookup *t, i16x32 x)
{
    const i16x32 magnitude = x & t->c.magnitude, sum = small_sum(t, magnitude);
    const i16x32 signed_sum = i16x32_sub_if(i16x32_negative(x), sum, t->c.fraction, sum);
    return i16x32_add_if(i16x32_above(t->c.nan, magnitude), t->c.offset, signed_sum);
}

/* Int4 codes in pairs, each plus 8; length is a multiple of TABLE_PAIRS_STEP. */
ALWAYS_INLINE void table_pairs(const struct table_constants *c, const uint16_t *from, unsigned char *to, size_t length,
                               float scale)
{
    const struct code_lookup t = code_lookup_of(c, QOBS_CODE_INTEGER, scale);
    for (size_t j = 0; j < length; j += TABLE_PAIRS_STEP) {
        i16x32 words[4];
        for (int k = 0; k < 4; k++)
            words[k] = int4_words(&t, i16x32_load(from + j + 32 * k));
        i16x32_store_high_halves(to + j / 2, words);
    }
}
