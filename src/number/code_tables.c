/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "number/code_tables.h"

#include <math.h>
#include <stdatomic.h>

#include "number/number.h"

/* The smallest BF16 x whose x / scale, rounded to BF16, reaches the BF16 `quotient`. All three are bits. The middle of
 * two BF16 has 9 digits and its product with scale 17. No x is equal to it: the quotient would have 9 digits. */
static int threshold_of(uint32_t scale, uint32_t quotient)
{
    const float middle = (float_of_bits((quotient - 1) << 16) + float_of_bits(quotient << 16)) / 2;
    return (int)(bits_of_float(middle * float_of_bits(scale << 16)) >> 16) + 1;
}

/* The threshold of a code whose predecessor is as far below `middle` as the code is above. Ties go to even codes. */
static int tie_threshold(uint32_t scale, int code, float middle)
{
    return threshold_of(scale, (bits_of_float(middle) >> 16) + (code & 1));
}

/* An entry is the sum over all thresholds of their distances from the end of the bucket, each limited to a bucket,
 * minus the first distance of the bucket. */
static void make_small_table(struct code_tables *t, uint32_t i, uint32_t scale)
{
    enum { BUCKET = 1 << SMALL_BUCKET, CODES = 8 };
    const int origin = tie_threshold(scale, 1, 0.5f) - 1;
    t->small_origin[i] = (int16_t)origin;
    for (int b = 0; b < CODE_ENTRIES; b++) {
        int sum = 0;
        for (int code = 1; code <= CODES; code++) {
            const int above = BUCKET * (b + 1) - (tie_threshold(scale, code, (float)code - 0.5f) - origin);
            sum += above < 0 ? 0 : above < BUCKET ? above : BUCKET;
        }
        t->small[i][b] = (int16_t)(sum - BUCKET * b);
    }
}

/* The number in the middle between a normal e4m3 and the one below it. */
static float e4m3_middle(int code) { return ldexpf(8 + (float)((code - 1) % 8) + 0.5f, (code - 1) / 8 - 10); }

/* Codes 8 to 15 are those of the first binade of normal numbers. The origin is half the threshold of 16: the threshold
 * of 8 is lower, because subnormal numbers below it are further apart than those below 16. */
static void make_e4m3_table(struct code_tables *t, uint32_t i, uint32_t scale)
{
    enum { BUCKET = 1 << E4M3_BUCKET, FIRST = 8 };
    const int origin = tie_threshold(scale, 16, e4m3_middle(16)) - CODE_BINADE;
    t->e4m3_origin[i] = (int16_t)origin;
    t->e4m3_most[i] = (int16_t)(tie_threshold(scale, 126, e4m3_middle(126)) - origin);
    for (int b = 0; b < CODE_ENTRIES; b++) {
        const int bucket = BUCKET * (b % (CODE_BINADE / BUCKET));
        int code = FIRST, next;
        while ((next = tie_threshold(scale, code + 1, e4m3_middle(code + 1)) - origin) <= bucket)
            code++;
        const int below = next - bucket < BUCKET ? next - bucket : BUCKET;
        t->e4m3[i][b] = (int16_t)(16 * (code + 1) - below - bucket);
    }
}

const struct code_tables *qobs_code_tables(void)
{
    enum { MISSING, IN_WORK, MADE };
    static struct code_tables tables;
    static atomic_int state;
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now == MISSING && atomic_compare_exchange_strong(&state, &now, IN_WORK)) {
        for (uint32_t i = 0; i < CODE_TABLES; i++) {
            make_small_table(&tables, i, 127 * CODE_BINADE + i);
            make_e4m3_table(&tables, i, 127 * CODE_BINADE + i);
        }
        now = MADE;
        atomic_store_explicit(&state, now, memory_order_release);
    }
    return now == MADE ? &tables : NULL;
}
