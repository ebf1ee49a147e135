/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels that quantize to codes: every dtype, kind of code and arithmetic on every usable instruction set against a
 * slow computation; every 16-bit number with many scales. */
#include <math.h>

#include "check/exercised.h"
#include "check/upper_halves.h"
#include "codes.h"
#include "number/multiply_add.h"
#include "number/q8_block.h"
#include "qobs/format.h"
#include "repeats.h"
#include "unit.h"

enum { WAYS = 20 };

static void make_ways(struct code_way *ways)
{
    size_t n = 0;
    for (int in_float = 0; in_float < 2; in_float++) {
        for (int bits = 2; bits <= 8; bits++)
            ways[n++] = (struct code_way){QOBS_CODE_INTEGER, bits, in_float};
        ways[n++] = (struct code_way){QOBS_CODE_E4M3, 8, in_float};
        ways[n++] = (struct code_way){QOBS_CODE_E2M3, 6, in_float};
        ways[n++] = (struct code_way){QOBS_CODE_E2M1, 4, in_float};
    }
    assert_int_equal(n, WAYS);
}

static double random_scale(qobs_dtype dtype)
{
    static const double special[] = {0, -0.0, INFINITY, NAN, -0.5, 0x1p-126, 0x1p-133, 0x1.8p-149, 0x1p100, 0x1p-24};
    if (random_bits() % 8 == 0)
        return round_dtype(dtype, special[random_bits() % (sizeof special / sizeof *special)]);
    if (random_bits() % 4 == 0)
        return ldexp(1, (int)(random_bits() % 20) - 14);
    return round_dtype(dtype, exp2(uniform(-12, 3)));
}

/* One in three is a tie of the grid, if the scale is short enough; one in eight has any bits. */
static double random_x(const struct code_way *way, qobs_dtype dtype, double scale)
{
    const double most = 1.2 * most_of_codes(way);
    switch (random_bits() % 8) {
    case 0:
        return dtype == QOBS_F16    ? (double)float_of_f16((uint16_t)random_bits())
               : dtype == QOBS_BF16 ? (double)float_of_bf16((uint16_t)random_bits())
                                    : (double)float_of_bits(random_bits());
    case 1:
        return random_bits() & 1 ? 0 : -0.0;
    case 2:
    case 3:
        return round_dtype(dtype, nearbyint(2 * uniform(-most, most)) / 2 * scale);
    default:
        return round_dtype(dtype, uniform(-most, most) * scale);
    }
}

enum { ROWS = 5, MOST = 150, FENCE = 64 };

struct call {
    const struct code_way *way;
    qobs_dtype dtype;
    bool columns, zero_points, with_sum;
    size_t length, offset, gap; /* bytes after a row */
};

/* Without sums the two numbers stay. NaN has any bits. */
static void check_sums(const struct call *c, const char *isa, const double *sum, const double *added)
{
    const double expected[] = {c->with_sum ? 0.5 + added[0] : 0.5, c->with_sum ? 0.25 + added[1] : 0.25};
    for (int k = 0; k < 2; k++)
        if (sum[k] != expected[k] && !(isnan(sum[k]) && isnan(expected[k])))
            fail_msg("%s %s kind %d bits %d%s, %s of %zu, zero points %d: sum %d is %a, expected %a", isa,
                     qobs_dtype_name(c->dtype), c->way->kind, c->way->bits, c->way->in_float ? " in float" : "",
                     c->columns ? "columns" : "rows", c->length, c->zero_points, k, sum[k], expected[k]);
}

static void check_call(const struct call *c)
{
    static unsigned char x[ROWS * (MOST * 8 + FENCE)], codes[ROWS * (MOST + FENCE)], expected[sizeof codes];
    static double scales[MOST], zero_points[MOST], reals[3][MOST];
    struct slow_sums sums = {.dtype = c->dtype == QOBS_F64 ? QOBS_F64 : QOBS_F32};
    const size_t element = qobs_dtype_size(c->dtype), qparams = c->columns ? c->length : ROWS;
    const ptrdiff_t stride = (ptrdiff_t)(c->length * element + c->gap), code_stride = (ptrdiff_t)(c->length + c->gap);
    for (size_t i = 0; i < qparams; i++) {
        scales[i] = random_scale(c->way->in_float ? QOBS_F32 : c->dtype);
        zero_points[i] = nearbyint(uniform(-most_of_codes(c->way), most_of_codes(c->way)));
        put_real(c->dtype, reals[0], i, scales[i]);
        put_real(c->dtype, reals[1], i, c->zero_points ? round_dtype(c->dtype, zero_points[i]) : -0.0);
        put_real(c->dtype, reals[2], i,
                 c->zero_points ? round_dtype(c->way->in_float ? QOBS_F32 : c->dtype, zero_points[i]) : 0);
    }
    const bool given = c->zero_points || c->columns;
    const struct qparam_pair p = {reals[0], given ? reals[1] : NULL, given && c->with_sum ? reals[2] : NULL};
    memset(expected, 0x5a, sizeof expected);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t j = 0; j < c->length; j++) {
            const size_t q = c->columns ? j : row;
            const double value = random_x(c->way, c->dtype, scales[q]);
            unsigned char number[8];
            put(c->dtype, number, 0, value);
            memcpy(x + c->offset + row * (size_t)stride + j * element, number, element);
            const double *zero_point = c->zero_points ? &zero_points[q] : NULL;
            const unsigned char code = slow_code(c->way, c->dtype, value, scales[q], zero_point);
            expected[c->offset + row * (size_t)code_stride + j] = code;
            const bool is_number = !isnan(slow_scaled(c->way, c->dtype, value, scales[q], zero_point));
            const double back = slow_dequantize(c->way, c->dtype, code, scales[q], zero_point);
            slow_sums_add(&sums, j, c->length, is_number ? value - back : (double)NAN, value);
        }
    slow_sums_flush(&sums);
    const struct quantizer quantizer = quantizer_of_codes(c->way);
    enum kernel_dtype index;
    qobs_kernel_dtype_of(c->dtype, &index);
    for (size_t t = 0; usable_table(&t); t++) {
        const struct kernel_table *table = qobs_kernel_tables[t];
        double sum[] = {0.5, 0.25}, *to_sum = c->with_sum ? sum : NULL;
        memset(codes, 0x5a, sizeof codes);
        if (c->columns)
            CALL(table, quantize_columns[index])
        (&quantizer, c->way->kind, x + c->offset, stride, codes + c->offset, code_stride, ROWS, c->length, &p, to_sum);
        else CALL(table, quantize_rows[index])(&quantizer, c->way->kind, x + c->offset, stride, codes + c->offset,
                                               code_stride, ROWS, c->length, &p, 1, to_sum);
        check_upper_halves(table->isa, c->columns ? "quantize_columns" : "quantize_rows");
        for (size_t i = 0; i < sizeof codes; i++)
            if (codes[i] != expected[i]) {
                const size_t at = i - c->offset, row = at / (size_t)code_stride, j = at % (size_t)code_stride;
                const size_t q = c->columns ? j : row;
                unsigned char number[8] = {0};
                if (row < ROWS && j < c->length)
                    memcpy(number, x + c->offset + row * (size_t)stride + j * element, element);
                fail_msg("%s %s kind %d bits %d%s, %s: row %zu element %zu, x %a, scale %a, zero point %g (%d): %#x, "
                         "expected %#x",
                         table->isa, qobs_dtype_name(c->dtype), c->way->kind, c->way->bits,
                         c->way->in_float ? " in float" : "", c->columns ? "columns" : "rows", row, j,
                         get(c->dtype, number, 0), scales[q % MOST], zero_points[q % MOST], c->zero_points, codes[i],
                         expected[i]);
            }
        check_sums(c, table->isa, sum, sums.sum);
    }
}

static void test_kernels(void **state)
{
    const qobs_dtype dtype = *(const qobs_dtype *)*state;
    struct code_way ways[WAYS];
    make_ways(ways);
    for (size_t w = 0; w < WAYS; w++)
        for (int i = 0; i < 300; i++) {
            const struct call c = {.way = &ways[w],
                                   .dtype = dtype,
                                   .columns = random_bits() & 1,
                                   .zero_points = random_bits() & 1,
                                   .with_sum = random_bits() & 1,
                                   .length = i < 2 * 70   ? (size_t)i / 2
                                             : i % 2 == 0 ? 32 /* half of what one step takes */
                                                          : random_bits() % MOST,
                                   .offset = random_bits() % FENCE,
                                   .gap = random_bits() & 1 ? FENCE : 0};
            check_call(&c);
        }
}

/* Every code in each run, with junk around and, for e2m1, in the high bits. */
static void check_back(const struct code_way *way, qobs_dtype dtype, bool columns, bool with, size_t length)
{
    static unsigned char codes[ROWS * (256 + FENCE)], out[ROWS * (256 * 8 + FENCE) + FENCE], expected[sizeof out];
    static double scales[256], zero_points[256], reals[2][256];
    const size_t element = qobs_dtype_size(dtype), offset = random_bits() % FENCE;
    const ptrdiff_t stride = (ptrdiff_t)(length * element + FENCE - 1), code_stride = (ptrdiff_t)length + 3;
    for (size_t i = 0; i < 256; i++) {
        scales[i] = random_scale(way->in_float ? QOBS_F32 : dtype);
        zero_points[i] = nearbyint(uniform(-most_of_codes(way), most_of_codes(way)));
        put_real(dtype, reals[0], i, scales[i]);
        put_real(dtype, reals[1], i, round_dtype(way->in_float ? QOBS_F32 : dtype, zero_points[i]));
    }
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (unsigned char)(i % 256 * 167 + i / 256);
    memset(expected, 0x5a, sizeof expected);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t j = 0; j < length; j++) {
            const size_t q = columns ? j : row;
            const double value = slow_dequantize(way, dtype, codes[row * (size_t)code_stride + j], scales[q],
                                                 with ? &zero_points[q] : NULL);
            unsigned char number[8];
            put(dtype, number, 0, value);
            memcpy(expected + offset + row * (size_t)stride + j * element, number, element);
        }
    const struct qparam_pair p = {reals[0], NULL, with ? reals[1] : NULL};
    const struct quantizer quantizer = quantizer_of_codes(way);
    enum kernel_dtype index;
    qobs_kernel_dtype_of(dtype, &index);
    for (size_t t = 0; usable_table(&t); t++) {
        const struct kernel_table *table = qobs_kernel_tables[t];
        memset(out, 0x5a, sizeof out);
        unsigned char *to = out + offset;
        if (columns)
            CALL(table, dequantize_columns[index])
        (&quantizer, way->kind, codes, code_stride, to, stride, ROWS, length, &p);
        else CALL(table, dequantize_rows[index])(&quantizer, way->kind, codes, code_stride, to, stride, ROWS, length,
                                                 &p, 1);
        check_upper_halves(table->isa, columns ? "dequantize_columns" : "dequantize_rows");
        for (size_t i = 0; i < sizeof out; i++)
            if (out[i] != expected[i])
                fail_msg("%s %s kind %d%s, %s of %zu, zero points %d: byte %zu is %#x, expected %#x", table->isa,
                         qobs_dtype_name(dtype), way->kind, way->in_float ? " in float" : "",
                         columns ? "columns" : "rows", length, with, i, out[i], expected[i]);
    }
}

static void test_back(void **state)
{
    struct code_way ways[WAYS];
    make_ways(ways);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t w = 0; w < WAYS; w++)
            for (unsigned i = 0; i < 4 * 40; i++)
                check_back(&ways[w], dtypes[d], i & 1, i >> 1 & 1, i < 4 ? 256 : i / 4);
}

/* A run of every 16-bit number, for every way and many scales. */
static void test_every_half(void **state)
{
    const qobs_dtype dtype = *(const qobs_dtype *)*state;
    enum { NUMBERS = 65536, SCALES = 12 };
    static uint16_t x[NUMBERS];
    static unsigned char codes[NUMBERS], expected[NUMBERS];
    struct code_way ways[WAYS];
    enum kernel_dtype index;
    make_ways(ways);
    qobs_kernel_dtype_of(dtype, &index);
    for (size_t i = 0; i < NUMBERS; i++)
        x[i] = (uint16_t)i;
    for (size_t w = 0; w < WAYS; w++)
        for (int k = 0; k < SCALES; k++) {
            const struct code_way *way = &ways[w];
            const bool with = k % 3 == 2;
            const double scale = random_scale(way->in_float ? QOBS_F32 : dtype);
            const double zero_point = nearbyint(uniform(-most_of_codes(way), most_of_codes(way)));
            const float s = (float)scale, z = (float)round_dtype(dtype, zero_point);
            const struct qparam_pair p = {&s, with ? &z : NULL, NULL};
            const struct quantizer quantizer = quantizer_of_codes(way);
            for (size_t i = 0; i < NUMBERS; i++)
                expected[i] = slow_code(way, dtype, get(dtype, x, (int64_t)i), scale, with ? &zero_point : NULL);
            for (size_t t = 0; usable_table(&t); t++) {
                qobs_kernel_tables[t]->quantize_rows[index](&quantizer, way->kind, x, 0, codes, 0, 1, NUMBERS, &p, 0,
                                                            NULL);
                for (size_t i = 0; i < NUMBERS; i++)
                    if (codes[i] != expected[i])
                        fail_msg("%s %s kind %d bits %d%s: %#zx, scale %a, zero point %g (%d): %#x, expected %#x",
                                 qobs_kernel_tables[t]->isa, qobs_dtype_name(dtype), way->kind, way->bits,
                                 way->in_float ? " in float" : "", i, scale, zero_point, with, codes[i], expected[i]);
            }
        }
}

/* Codes of 4 bits have loops for short runs one after another, and for pairs. All runs have one scale. */
static void check_short_runs(const struct kernel_table *table, const struct code_way *way, const uint16_t *x,
                             const unsigned char *expected, size_t runs, size_t length, const struct qparam_pair *p)
{
    static unsigned char codes[65536];
    unsigned char pairs[QOBS_PAIR_CODES / 2], expected_pairs[QOBS_PAIR_CODES / 2];
    const struct quantizer quantizer = quantizer_of_codes(way);
    const unsigned offset = way->kind == QOBS_CODE_INTEGER ? 8 : 0;
    table->quantize_rows[QOBS_KERNEL_BF16](&quantizer, way->kind, x, 2 * (ptrdiff_t)length, codes, (ptrdiff_t)length,
                                           runs, length, p, 0, NULL);
    assert_memory_equal(codes, expected, runs * length);
    const size_t at_once = QOBS_PAIR_CODES / length;
    for (size_t i = 0; at_once > 0 && i < runs; i += at_once) {
        const size_t n = runs - i < at_once ? runs - i : at_once;
        table->quantize_pairs[QOBS_KERNEL_BF16](&quantizer, way->kind, offset, x + i * length, 2 * (ptrdiff_t)length,
                                                pairs, (ptrdiff_t)length / 2, n, length, p, 0, NULL);
        qobs_kernel_tables[0]->pack_pairs(expected + i * length, n * length / 2, offset, expected_pairs);
        assert_memory_equal(pairs, expected_pairs, n * length / 2);
    }
}

/* Kernels may multiply by the reciprocal of a bf16 scale: every pair of significands, with exponents that give all
 * codes and quotients around the smallest normal number, and scales around the limits of that way. */
static void check_quotients(const struct code_way *way, double scale, size_t step)
{
    static uint16_t x[65536];
    static unsigned char codes[65536], expected[65536];
    const float s = (float)scale;
    const struct qparam_pair p = {&s, NULL, NULL};
    const struct quantizer quantizer = quantizer_of_codes(way);
    size_t n = 0;
    for (size_t i = 0; i < 65536; i++) {
        const double quotient = fabs(get(QOBS_BF16, &(uint16_t){(uint16_t)i}, 0) / scale);
        if (i % step == 0 || (quotient > 0x1p-11 && quotient < 512)) {
            x[n] = (uint16_t)i;
            expected[n] = slow_code(way, QOBS_BF16, get(QOBS_BF16, x, (int64_t)n), scale, NULL);
            n++;
        }
    }
    for (; n % 128 != 0; n++) { /* full vectors have loops of their own */
        x[n] = x[0];
        expected[n] = expected[0];
    }
    for (size_t t = 0; usable_table(&t); t++) {
        qobs_kernel_tables[t]->quantize_rows[QOBS_KERNEL_BF16](&quantizer, way->kind, x, 0, codes, 0, 1, n, &p, 0,
                                                               NULL);
        for (size_t i = 0; i < n; i++)
            if (codes[i] != expected[i])
                fail_msg("%s kind %d bits %d: %#x, scale %a: %#x, expected %#x", qobs_kernel_tables[t]->isa, way->kind,
                         way->bits, x[i], scale, codes[i], expected[i]);
        for (size_t length = way->bits == 4 ? 16 : n; length < n; length *= 2)
            check_short_runs(qobs_kernel_tables[t], way, x, expected, n / length, length, &p);
    }
}

static void test_every_quotient(void **state)
{
    static const struct code_way ways[] = {{QOBS_CODE_INTEGER, 8, false},
                                           {QOBS_CODE_INTEGER, 4, false},
                                           {QOBS_CODE_E4M3, 8, false},
                                           {QOBS_CODE_E2M3, 6, false},
                                           {QOBS_CODE_E2M1, 4, 0}};
    static const int exponents[] = {-127, -126, -101, -100, -99, -1, 0, 1, 99, 100, 101, 126};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        for (int significand = 128; significand < 256; significand += repeats(5, 1))
            check_quotients(&ways[w], ldexp(significand, -14), 97);
        for (size_t e = 0; e < sizeof exponents / sizeof *exponents; e++)
            for (int significand = 128; significand < 256; significand += 42)
                check_quotients(&ways[w], ldexp(significand, exponents[e] - 7), 1);
    }
}

/* Scales in float for which a quotient is at a threshold of e2m1 or a few roundings away from it. */
static void test_near_ties(void **state)
{
    static const double ties[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
    static const struct code_way way = {QOBS_CODE_E2M1, 4, true};
    for (size_t t = 0; t < sizeof ties / sizeof *ties; t++)
        for (int i = 0; i < 40; i++) {
            const double x = ldexp(128 + random_bits() % 128, (int)(random_bits() % 20) - 20);
            uint32_t bits = bits_of_float((float)(x / ties[t]));
            bits = i == 0 ? bits | 0x7fffff : bits + random_bits() % 5 - 2;
            check_quotients(&way, (double)float_of_bits(bits), 97);
        }
}

/* Short runs one after another, each with a scale of its own: kernels have loops for several runs at once, and for
 * scales that are powers of two. Most numbers become codes that are neither subnormal nor the largest. */
static void test_short_runs(void **state)
{
    enum { RUNS = 35, LONGEST = 64 };
    static const struct code_way ways[] = {{QOBS_CODE_E2M1, 4, false}, {QOBS_CODE_E2M1, 4, true},
                                           {QOBS_CODE_E4M3, 8, false}, {QOBS_CODE_INTEGER, 4, false},
                                           {QOBS_CODE_INTEGER, 8, false}};
    uint16_t x[RUNS * LONGEST];
    unsigned char codes[RUNS * LONGEST];
    float scale[RUNS];
    const struct qparam_pair p = {scale, NULL, NULL};
    for (size_t length = 16; length <= LONGEST; length *= 2)
        for (size_t round = 0; round < 40 * sizeof ways / sizeof *ways; round++) {
            const struct code_way *way = &ways[round % (sizeof ways / sizeof *ways)];
            const struct quantizer quantizer = quantizer_of_codes(way);
            const bool powers = random_bits() & 1, any = round < 4 * sizeof ways / sizeof *ways;
            for (size_t i = 0; i < RUNS; i++)
                scale[i] = float_of_bits(((100 + random_bits() % 20) << 23) |
                                         (powers ? 0
                                                 : (random_bits() % 128) << 16 |
                                                       (way->in_float ? random_bits() & 0xffff : 0)));
            for (size_t i = 0; i < RUNS * length; i++)
                x[i] = (uint16_t)(any ? random_bits()
                                      : (random_bits() & 0x8000) | (95 + random_bits() % 30) << 7 |
                                            random_bits() % 128);
            for (size_t t = 0; usable_table(&t); t++) {
                qobs_kernel_tables[t]->quantize_rows[QOBS_KERNEL_BF16](&quantizer, way->kind, x, 2 * (ptrdiff_t)length,
                                                                       codes, (ptrdiff_t)length, RUNS, length, &p, 1,
                                                                       NULL);
                for (size_t i = 0; i < RUNS * length; i++)
                    assert_int_equal(codes[i], slow_code(way, QOBS_BF16, get(QOBS_BF16, x, (int64_t)i),
                                                         (double)scale[i / length], NULL));
            }
        }
}

/* Numbers of which the kernel is told that they are bounded: every BF16 up to 2^14 scales. */
static void test_bounded(void **state)
{
    static uint16_t x[65536];
    static unsigned char codes[65536];
    for (int bits = 3; bits <= 8; bits++)
        for (int k = 0; k < 60; k++) {
            const struct code_way way = {QOBS_CODE_INTEGER, bits, k % 10 == 0};
            const bool with = k & 1;
            const double scale = round_dtype(QOBS_BF16, exp2(uniform(-20, 10)));
            const double zero_point = nearbyint(uniform(-most_of_codes(&way), most_of_codes(&way)));
            const float s = (float)scale, z = (float)zero_point;
            const struct qparam_pair p = {&s, with ? &z : NULL, NULL};
            struct quantizer quantizer = quantizer_of_codes(&way);
            size_t n = 0;
            quantizer.bounded = true;
            for (uint32_t i = 0; i < 65536; i++) {
                const uint16_t number = (uint16_t)(i * 40503); /* in another order */
                if (fabs(get(QOBS_BF16, &number, 0)) <= 0x1p14 * scale)
                    x[n++] = number;
            }
            for (size_t t = 0; usable_table(&t); t++) {
                qobs_kernel_tables[t]->quantize_rows[QOBS_KERNEL_BF16](&quantizer, way.kind, x, 0, codes, 0, 1, n, &p,
                                                                       0, NULL);
                for (size_t i = 0; i < n; i++) {
                    const unsigned char expected = slow_code(&way, QOBS_BF16, get(QOBS_BF16, x, (int64_t)i), scale,
                                                             with ? &zero_point : NULL);
                    if (codes[i] != expected)
                        fail_msg("%s bits %d: %#x, scale %a, zero point %g (%d): %#x, expected %#x",
                                 qobs_kernel_tables[t]->isa, bits, x[i], scale, zero_point, with, codes[i], expected);
                }
            }
        }
}

/* Random bytes with every offset, and all counts around the lines of a cache. */
static void test_pack_pairs(void **state)
{
    enum { CODES = 2 * 200 };
    unsigned char codes[CODES], packed[CODES / 2 + 1];
    for (size_t t = 0; usable_table(&t); t++) {
        const struct kernel_table *table = qobs_kernel_tables[t];
        for (size_t pairs = 0; pairs <= CODES / 2; pairs++) {
            const unsigned offset = (unsigned)pairs % 129;
            for (size_t i = 0; i < CODES; i++)
                codes[i] = (unsigned char)random_bits();
            memset(packed, 0x5a, sizeof packed);
            CALL(table, pack_pairs)(codes, pairs, offset, packed);
            for (size_t i = 0; i < pairs; i++)
                assert_int_equal(packed[i], ((codes[2 * i] + offset) & 15) | ((codes[2 * i + 1] + offset) & 15) << 4);
            assert_int_equal(packed[pairs], 0x5a);
        }
    }
}

/* quantize_pairs writes what quantize_rows and then pack_pairs write. Int4 of BF16 has a loop for runs of whole
 * vectors. It stops at a scale that is beyond its limits. */
static void check_pairs(const struct code_way *way, qobs_dtype dtype, size_t length, unsigned offset, bool with_sum,
                        bool with_zero_points)
{
    enum { RUNS = 7, LONGEST = 512, GAP = 3 };
    static unsigned char x[RUNS * LONGEST * 8], codes[RUNS * LONGEST], expected[RUNS * (LONGEST / 2 + GAP)],
        pairs[sizeof expected];
    double reals[3][RUNS];
    const size_t element = qobs_dtype_size(dtype);
    const ptrdiff_t stride = (ptrdiff_t)(length * element), gap = random_bits() & 1 ? GAP : 0;
    const ptrdiff_t pair_stride = (ptrdiff_t)length / 2 + gap;
    const bool usual = random_bits() & 1; /* no scale is beyond any limit */
    for (size_t i = 0; i < RUNS; i++) {
        const double scale = usual ? exp2(uniform(-12, 0)) : random_scale(way->in_float ? QOBS_F32 : dtype);
        const double rounded = round_dtype(way->in_float ? QOBS_F32 : dtype, scale);
        put_real(dtype, reals[0], i, rounded);
        put_real(dtype, reals[1], i, nearbyint(uniform(-4, 4)));
        put_real(dtype, reals[2], i, get(dtype == QOBS_F64 ? QOBS_F64 : QOBS_F32, reals[1], (int64_t)i));
        for (size_t j = 0; j < length; j++)
            put(dtype, x, (int64_t)(i * length + j), random_x(way, dtype, rounded));
    }
    const struct qparam_pair p = {reals[0], with_zero_points ? reals[1] : NULL, with_zero_points ? reals[2] : NULL};
    const struct quantizer quantizer = quantizer_of_codes(way);
    enum kernel_dtype index;
    qobs_kernel_dtype_of(dtype, &index);
    for (size_t t = 0; usable_table(&t); t++) {
        const struct kernel_table *table = qobs_kernel_tables[t];
        double sum[] = {0.5, 0.25}, expected_sum[] = {0.5, 0.25};
        memset(expected, 0x5a, sizeof expected);
        memset(pairs, 0x5a, sizeof pairs);
        table->quantize_rows[index](&quantizer, way->kind, x, stride, codes, (ptrdiff_t)length, RUNS, length, &p, 1,
                                    with_sum ? expected_sum : NULL);
        for (size_t i = 0; i < RUNS; i++)
            table->pack_pairs(codes + i * length, length / 2, offset, expected + (ptrdiff_t)i * pair_stride);
        CALL(table, quantize_pairs[index])(&quantizer, way->kind, offset, x, stride, pairs, pair_stride, RUNS, length,
                                           &p, 1, with_sum ? sum : NULL);
        check_upper_halves(table->isa, "quantize_pairs");
        assert_memory_equal(pairs, expected, sizeof pairs);
        for (int k = 0; k < 2; k++)
            assert_true(sum[k] == expected_sum[k] || (isnan(sum[k]) && isnan(expected_sum[k])));
    }
}

static void test_pairs(void **state)
{
    static const struct code_way ways[] = {{QOBS_CODE_INTEGER, 4, false},
                                           {QOBS_CODE_INTEGER, 3, false},
                                           {QOBS_CODE_INTEGER, 4, true},
                                           {QOBS_CODE_E2M1, 4, false},
                                           {QOBS_CODE_E2M1, 4, true}};
    static const size_t lengths[] = {2, 16, 30, 128, 256, 384, 510};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                for (unsigned k = 0; k < 40; k++)
                    check_pairs(&ways[w], dtypes[d], lengths[i], k & 1 ? 8 : 0, k % 8 >= 6, k % 5 == 4);
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* x * (1 / scale) + zero point in float, which is rounded to a code. */
static float slow_product(const struct quantizer *q, double x, float scale, const float *zero_point)
{
    const float inverse = 1 / scale, product = (float)(x * (double)inverse);
    return !zero_point ? product : q->fused ? multiply_add((float)x, inverse, *zero_point) : product + *zero_point;
}

static unsigned char slow_product_code(const struct quantizer *q, const struct code_way *way, float v)
{
    if (way->kind != QOBS_CODE_INTEGER) /* a scale of 1 rounds nothing */
        return slow_code(way, QOBS_F32, (double)v, 1, NULL);
    return isnan(v) ? q->nan : (unsigned char)(int)nearbyint(v < -128 ? -128 : v > 127 ? 127 : (double)v);
}

/* bounded: scales and zero points are those of each run. */
static void make_product_runs(const struct code_way *way, qobs_dtype dtype, bool bounded, bool symmetric, size_t runs,
                              size_t length, unsigned char *x, float *scale, float *zero_point)
{
    for (size_t i = 0; i < runs; i++) {
        double low = INFINITY, high = -(double)INFINITY;
        const double shift = random_bits() & 1 ? uniform(-300, 300) : 0, size = exp2(uniform(-30, 10));
        scale[i] = (float)random_scale(QOBS_F32);
        zero_point[i] = (float)nearbyint(uniform(-140, 140));
        for (size_t j = 0; j < length; j++) {
            const double free = random_x(way, dtype, (double)scale[i]);
            const double v = bounded ? round_dtype(dtype, (uniform(-1, 1) + shift) * size) : free;
            put(dtype, x, (int64_t)(i * length + j), v);
            low = v < low ? v : low;
            high = v > high ? v : high;
        }
        if (bounded && length > 0) {
            scale[i] = symmetric ? (float)fmax(fabs(low), fabs(high)) / (float)most_of_codes(way)
                                 : ((float)high - (float)low) / 255;
            zero_point[i] = rintf(-128 - (float)low / scale[i]);
        }
    }
}

static void check_products(const struct code_way *way, qobs_dtype dtype, bool bounded, bool with_zero_points,
                           bool fused, size_t length)
{
    enum { RUNS = 4, LONGEST = 200, GAP = 5 };
    static unsigned char x[RUNS * LONGEST * 4], codes[RUNS * (LONGEST + GAP)], expected[sizeof codes];
    float scale[RUNS], zero_point[RUNS];
    const ptrdiff_t stride = (ptrdiff_t)(length * qobs_dtype_size(dtype)), code_stride = (ptrdiff_t)length + GAP;
    struct quantizer q;
    enum kernel_dtype index;
    qobs_kernel_dtype_of(dtype, &index);
    q = quantizer_of_codes(way);
    q.product = true;
    q.bounded = bounded;
    q.fused = fused;
    q.nan = random_bits() & 1 ? 0x80 : 0;
    make_product_runs(way, dtype, bounded, !with_zero_points, RUNS, length, x, scale, zero_point);
    memset(expected, 0x5a, sizeof expected);
    for (size_t i = 0; i < RUNS; i++)
        for (size_t j = 0; j < length; j++)
            expected[i * (length + GAP) + j] =
                slow_product_code(&q, way,
                                  slow_product(&q, get(dtype, x, (int64_t)(i * length + j)), scale[i],
                                               with_zero_points ? &zero_point[i] : NULL));
    for (size_t t = 0; usable_table(&t); t++) {
        const struct kernel_table *table = qobs_kernel_tables[t];
        memset(codes, 0x5a, sizeof codes);
        CALL(table, product_rows[index])
        (&q, way->kind, x, stride, codes, code_stride, RUNS, length, scale, with_zero_points ? zero_point : NULL, 1);
        check_upper_halves(table->isa, "product_rows");
        for (size_t i = 0; i < sizeof codes; i++)
            if (codes[i] != expected[i])
                fail_msg("%s %s kind %d, %zu elements, bounded %d, fused %d: code %zu is %#x, expected %#x", table->isa,
                         qobs_dtype_name(dtype), way->kind, length, bounded, with_zero_points ? fused : -1, i, codes[i],
                         expected[i]);
    }
}

static void test_products(void **state)
{
    static const struct code_way int8 = {QOBS_CODE_INTEGER, 8, true}, e4m3 = {QOBS_CODE_E4M3, 8, true},
                                 e2m1 = {QOBS_CODE_E2M1, 4, true};
    for (size_t d = 0; d < 3; d++) /* not F64 */
        for (size_t length = 0; length < 200; length++) {
            for (unsigned k = 0; k < 8; k++)
                check_products(&int8, dtypes[d], k & 1, k & 2, k & 4, length);
            for (unsigned k = 0; k < 2; k++) {
                check_products(&e4m3, dtypes[d], k & 1, false, false, length);
                check_products(&e2m1, dtypes[d], k & 1, false, false, length);
            }
        }
}

/* ---- Blocks of ggml's activations -------------------------------------------------------------------------------- */

enum { MOST_BLOCKS = 35, PEAKS_BEHIND = 15 };

static bool is_arm(enum q8_block block) { return block == Q8_0_ARM || block == Q8_K_ARM; }

/* The integer nearest to x * factor, ties to even: of the exact product, or of the product in float. */
static int slow_q8_code(bool exact, float x, float factor)
{
    const double product = (double)x * (double)factor;
    return (int)nearbyint(exact ? product : (double)(float)product);
}

/* An infinite factor: codes are the low bytes of the integers that instructions make of infinity and NaN. */
static unsigned char extreme_q8_code(bool arm, float x, bool zero)
{
    return zero ? 0 : !arm ? 0x80 : x > 0 ? 0xff : 0;
}

static void slow_q8_0(bool arm, const float *x, float largest, unsigned char *out)
{
    const float scale = largest / 127, factor = arm ? 1 / scale : 127 / largest;
    const uint16_t bits = f16_of_float(scale);
    memcpy(out, &bits, sizeof bits);
    for (size_t j = 0; j < Q8_0_ELEMENTS; j++)
        out[Q8_0_CODES + j] = isinf(factor) ? extreme_q8_code(arm, x[j], (arm ? scale : largest) == 0)
                                            : (unsigned char)slow_q8_code(false, x[j], factor);
}

static void slow_q8_k(bool arm, const float *x, float peak, unsigned char *out)
{
    const float factor = -127 / peak, scale = peak == 0 ? 0 : 1 / factor;
    int16_t sums[Q8_K_ELEMENTS / 16] = {0};
    memset(out, 0, Q8_K_BYTES);
    memcpy(out, &scale, sizeof scale);
    for (size_t j = 0; j < Q8_K_ELEMENTS && !isinf(factor); j++) {
        const int code = slow_q8_code(arm, x[j], factor);
        out[Q8_K_CODES + j] = (unsigned char)code;
        sums[j / 16] = (int16_t)(sums[j / 16] + code);
    }
    memcpy(out + Q8_K_SUMS, sums, sizeof sums);
}

/* Finite elements: zeros, small, common and large ones. Returns the peak of the block. */
static double make_q8_block(enum q8_block block, qobs_dtype dtype, unsigned char *x, int64_t first, float *number)
{
    const double most = dtype == QOBS_F16 ? 65504 : 0x1p120;
    const unsigned kind = random_bits() % 8;
    const double size = kind == 0 ? 0 : kind == 1 ? most : kind == 2 ? 0x1p-130 : exp2(uniform(-20, 10));
    double peak = 0;
    for (int64_t j = 0; j < q8_elements(block); j++) {
        put(dtype, x, first + j, random_bits() % 8 ? uniform(-1, 1) * size : 0);
        const double v = get(dtype, x, first + j);
        number[j] = (float)v;
        peak = fabs(v) > fabs(peak) ? v : peak;
    }
    return is_q8_k(block) ? peak : fabs(peak);
}

static void check_blocks(enum q8_block block, qobs_dtype dtype, size_t count)
{
    static unsigned char x[MOST_BLOCKS * Q8_K_ELEMENTS * sizeof(float)];
    static unsigned char out[(MOST_BLOCKS + 1) * Q8_K_BYTES], expected[sizeof out];
    unsigned char peaks[(MOST_BLOCKS + PEAKS_BEHIND) * sizeof(float)];
    enum kernel_dtype index;
    qobs_kernel_dtype_of(dtype, &index);
    memset(peaks, 0xff, sizeof peaks); /* NaN in those that are not used */
    memset(expected, 0x5a, sizeof expected);
    for (size_t b = 0; b < count; b++) {
        float number[Q8_K_ELEMENTS];
        const double peak = make_q8_block(block, dtype, x, (int64_t)b * q8_elements(block), number);
        put(dtype, peaks, (int64_t)b, peak);
        (is_q8_k(block) ? slow_q8_k : slow_q8_0)(is_arm(block), number, (float)peak,
                                                 expected + b * (size_t)q8_bytes(block));
    }
    for (size_t t = 0; usable_table(&t); t++) {
        const struct kernel_table *table = qobs_kernel_tables[t];
        memset(out, 0x5a, sizeof out);
        CALL(table, q8_blocks[index])(block, x, count, peaks, out);
        check_upper_halves(table->isa, "q8_blocks");
        for (size_t i = 0; i < sizeof out; i++)
            if (out[i] != expected[i])
                fail_msg("%s %s, kind %d, %zu blocks: byte %zu is %#x, expected %#x", table->isa,
                         qobs_dtype_name(dtype), (int)block, count, i, out[i], expected[i]);
    }
}

static void test_blocks(void **state)
{
    static const enum q8_block kinds[] = {Q8_0_X86, Q8_0_ARM, Q8_K_X86, Q8_K_ARM};
    for (size_t d = 0; d < 3; d++) /* not F64 */
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            for (size_t count = 0; count <= MOST_BLOCKS; count++)
                check_blocks(kinds[k], dtypes[d], count);
}

/* Comes last. */
static void test_every_slot(void **state)
{
    assert_int_equal(slots_failed_anywhere(CALLER_CODES), 0);
}

int main(void)
{
#define WITH(name, test, i) {name, test, NULL, NULL, (void *)(uintptr_t)&dtypes[i]}
    const struct CMUnitTest tests[] = {
        WITH("kernels, F32", test_kernels, 0), WITH("kernels, BF16", test_kernels, 1),
        WITH("kernels, F16", test_kernels, 2), WITH("kernels, F64", test_kernels, 3),
        cmocka_unit_test(test_back),           WITH("every BF16", test_every_half, 1),
        WITH("every F16", test_every_half, 2), cmocka_unit_test(test_every_quotient),
        cmocka_unit_test(test_near_ties),      cmocka_unit_test(test_short_runs),
        cmocka_unit_test(test_bounded),        cmocka_unit_test(test_pack_pairs),
        cmocka_unit_test(test_pairs),          cmocka_unit_test(test_products),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_every_slot),
    };
    return cmocka_run_group_tests_name("kernels of codes", tests, NULL, NULL) != 0;
}
