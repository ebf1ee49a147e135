/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Fake-quantize kernels: every dtype, format and arithmetic on every usable instruction set against a slow computation.
 */
#include <math.h>

#include "check/exercised.h"
#include "check/upper_halves.h"
#include "qobs/format.h"
#include "quantize.h"
#include "repeats.h"
#include "unit.h"

static struct quantizer quantizer_of(const struct way *way)
{
    struct quantizer q;
    if (way->format)
        qobs_quantizer_for_format(&q, way->format);
    else
        qobs_quantizer_for_integers(&q, way->quant_min, way->quant_max, true);
    q.in_float = way->in_float;
    return q;
}

/* All formats in both arithmetics, and torch's integers. */
enum { WAYS = 64 };

static size_t make_ways(struct way *ways)
{
    static const int64_t ranges[][2] = {{-128, 127},     {0, 255},   {0, 15}, {-64, 63},
                                        {-32768, 32767}, {0, 65535}, {-8, 7}, {INT32_MIN, INT32_MAX}};
    size_t n = 0;
    for (int in_float = 0; in_float < 2; in_float++)
        for (size_t i = 0; i < qobs_format_count(); i++)
            ways[n++] = (struct way){qobs_format_at(i), 0, 0, in_float};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        ways[n++] = (struct way){NULL, ranges[i][0], ranges[i][1], false};
    assert_true(n <= WAYS);
    return n;
}

static double random_x(qobs_dtype dtype, double scale, double quant_max)
{
    static const double special[] = {0,         -0.0,    INFINITY, -INFINITY,  NAN,     0x1p-149,
                                     -0x1p-133, 0x1p-24, 65504,    0x1.fep127, -0x1p127};
    switch (random_bits() % 8) {
    case 0:
        return round_dtype(dtype, special[random_bits() % (sizeof special / sizeof *special)]);
    case 1: /* any bits */
        return dtype == QOBS_F16    ? (double)float_of_f16((uint16_t)random_bits())
               : dtype == QOBS_BF16 ? (double)float_of_bf16((uint16_t)random_bits())
                                    : (double)float_of_bits(random_bits());
    case 2: /* a tie, if scale allows */
        return round_dtype(dtype, ((int)(random_bits() % 64) - 32) * 0.25 * scale);
    default: {
        const double most = quant_max < 1000 ? quant_max : 1000;
        return round_dtype(dtype, uniform(-1.2, 1.2) * most * scale);
    }
    }
}

static double random_scale(qobs_dtype dtype)
{
    static const double special[] = {0, INFINITY, NAN, -0.5, 0x1p-126, 0x1p-149, 0x1p100};
    if (random_bits() % 16 == 0)
        return round_dtype(dtype, special[random_bits() % (sizeof special / sizeof *special)]);
    if (random_bits() % 4 == 0)
        return ldexp(1, (int)(random_bits() % 20) - 14);
    return round_dtype(dtype, exp2(uniform(-12, 3)));
}

static double random_zero_point(const struct way *way)
{
    const double quant_min = way->format ? qobs_format_min(way->format) : (double)way->quant_min;
    const double quant_max = way->format ? qobs_format_max(way->format) : (double)way->quant_max;
    if (way->format && (way->format->kind != FORMAT_INTEGER || way->format->bits > 16))
        return (int)(random_bits() % 13) - 6;
    if (quant_max > 65535) /* further ones are no floats */
        return (int)(random_bits() % (1 << 24)) - (1 << 23);
    return floor(uniform(quant_min, quant_max + 1));
}

enum { ROWS = 6, MOST = 150, FENCE = 64 };

/* One call: rows of `length` elements, in runs or as columns. */
struct call {
    const struct way *way;
    qobs_dtype dtype;
    bool columns, in_place;
    int zero_points; /* 0: none; columns are then given -0 and +0 */
    size_t length, offset;
};

/* From x to out in the low 12 bits of addresses: any, or around a limit of a table. */
static size_t draw_distance(void)
{
    size_t distance = random_bits() % 4096;
    for (size_t t = 0; qobs_kernel_tables[t]; t++)
        for (const struct kernel_limit *l = qobs_kernel_tables[t]->limits; l->name; l++)
            if (l->of == QOBS_LIMIT_OF_DISTANCE && random_bits() % 4 == 0)
                distance = l->size + random_bits() % 3 - 1;
    return distance;
}

static void check_call(const struct call *c)
{
    static unsigned char x[ROWS * (MOST * 8 + FENCE)], expected[sizeof x], workspace[sizeof x + 4096];
    static double scales[MOST], zero_points[MOST];
    static double wide[3][MOST];
    unsigned char *const out = workspace + ((uintptr_t)x + draw_distance() - (uintptr_t)workspace) % 4096;
    const size_t element = qobs_dtype_size(c->dtype), qparams = c->columns ? c->length : ROWS;
    const qobs_dtype scale_dtype = c->way->in_float || !c->way->format ? QOBS_F32 : c->dtype;
    const ptrdiff_t stride = (ptrdiff_t)(c->length * element + FENCE);
    const qobs_dtype removed_dtype = c->way->in_float || !c->way->format ? QOBS_F32 : c->dtype;
    for (size_t i = 0; i < qparams; i++) {
        scales[i] = random_scale(scale_dtype);
        zero_points[i] = random_zero_point(c->way);
        const double zero_point_add = c->zero_points ? round_dtype(c->dtype, zero_points[i]) : -0.0;
        const double zero_point_sub = c->zero_points ? round_dtype(removed_dtype, zero_points[i]) : 0;
        put_real(c->dtype, wide[0], i, scales[i]);
        put_real(c->dtype, wide[1], i, zero_point_add);
        put_real(c->dtype, wide[2], i, zero_point_sub);
    }
    const bool given = c->zero_points || c->columns;
    const struct qparam_pair p = {wide[0], given ? wide[1] : NULL, given ? wide[2] : NULL};
    memset(expected, 0x5a, sizeof expected);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t j = 0; j < c->length; j++) {
            const size_t q = c->columns ? j : row;
            const double quant_max = c->way->format ? qobs_format_max(c->way->format) : (double)c->way->quant_max;
            const double value = random_x(c->dtype, scales[q], quant_max);
            unsigned char *at = x + c->offset + row * (size_t)stride;
            unsigned char number[8];
            put(c->dtype, number, 0, value);
            memcpy(at + j * element, number, element);
            put(c->dtype, number, 0, slow(c->way, c->dtype, value, scales[q], c->zero_points ? &zero_points[q] : NULL));
            memcpy(expected + c->offset + row * (size_t)stride + j * element, number, element);
        }
    const struct quantizer quantizer = quantizer_of(c->way);
    enum kernel_dtype index;
    qobs_kernel_dtype_of(c->dtype, &index);
    for (size_t t = 0; usable_table(&t); t++) {
        const struct kernel_table *table = qobs_kernel_tables[t];
        memset(out, 0x5a, sizeof x);
        const unsigned char *from = x + c->offset;
        unsigned char *to = out + c->offset;
        if (c->in_place) {
            for (size_t row = 0; row < ROWS; row++)
                memcpy(to + row * (size_t)stride, from + row * (size_t)stride, c->length * element);
            from = to;
        }
        if (c->columns)
            CALL(table, fake_quantize_columns[index])(&quantizer, from, stride, to, stride, ROWS, c->length, &p);
        else
            CALL(table, fake_quantize_rows[index])(&quantizer, from, stride, to, stride, ROWS, c->length, &p, 1);
        check_upper_halves(table->isa, c->columns ? "fake_quantize_columns" : "fake_quantize_rows");
        if (memcmp(out, expected, sizeof x) == 0)
            continue;
        for (size_t row = 0; row < ROWS; row++)
            for (size_t j = 0; j < c->length; j++) {
                const size_t at = c->offset + row * (size_t)stride + j * element, q = c->columns ? j : row;
                unsigned char in[8], is[8], should[8];
                memcpy(in, x + at, element);
                memcpy(is, out + at, element);
                memcpy(should, expected + at, element);
                if (memcmp(is, should, element) != 0)
                    fail_msg("%s %s, %s, %s: x %a, scale %a, zero point %g (%d) is %a, expected %a", table->isa,
                             qobs_dtype_name(c->dtype), name_of(c->way), c->columns ? "columns" : "rows",
                             get(c->dtype, in, 0), scales[q], zero_points[q], c->zero_points, get(c->dtype, is, 0),
                             get(c->dtype, should, 0));
            }
        fail_msg("%s %s, %s: wrote outside", table->isa, qobs_dtype_name(c->dtype), name_of(c->way));
    }
}

static void test_kernels(void **state)
{
    const qobs_dtype dtype = *(const qobs_dtype *)*state;
    struct way ways[WAYS];
    const size_t n = make_ways(ways);
    size_t calls = 0;
    for (size_t w = 0; w < n; w++)
        for (int i = 0; i < 120; i++, calls++) {
            const struct call c = {.way = &ways[w],
                                   .dtype = dtype,
                                   .columns = random_bits() & 1,
                                   .in_place = random_bits() & 1,
                                   .zero_points = random_bits() & 1,
                                   .length = i < 70 ? (size_t)i : random_bits() % MOST,
                                   .offset = random_bits() % FENCE};
            check_call(&c);
        }
    print_message("%zu calls\n", calls);
}

/* A run of every 16-bit number. */
static void test_every_half(void **state)
{
    const qobs_dtype dtype = *(const qobs_dtype *)*state;
    static uint16_t x[65536], out[65536];
    struct way ways[WAYS];
    const size_t n = make_ways(ways);
    enum kernel_dtype index;
    qobs_kernel_dtype_of(dtype, &index);
    for (size_t i = 0; i < 65536; i++)
        x[i] = (uint16_t)i;
    for (size_t w = 0; w < n; w++) {
        const struct way *way = &ways[w];
        const bool with = w & 1; /* an odd number of formats: the other one in the other arithmetic */
        const double scale = round_dtype(way->in_float || !way->format ? QOBS_F32 : dtype, exp2(uniform(-6, 0)));
        const double z = with ? floor(random_zero_point(way)) : 0, z_x = round_dtype(dtype, z);
        const float s = (float)scale, zero_point_add = (float)z_x,
                    zero_point_sub = way->in_float || !way->format ? (float)z : (float)z_x;
        const struct qparam_pair p = {&s, with ? &zero_point_add : NULL, with ? &zero_point_sub : NULL};
        const struct quantizer quantizer = quantizer_of(way);
        qobs_kernels_active()->fake_quantize_rows[index](&quantizer, x, 0, out, 0, 1, 65536, &p, 0);
        const size_t step = (size_t)repeats(3, 1);
        for (size_t i = w % step; i < 65536; i += step) {
            uint16_t expected;
            const double value = get(dtype, x, (int64_t)i);
            put(dtype, &expected, 0, slow(way, dtype, value, scale, with ? &z : NULL));
            if (out[i] != expected)
                fail_msg("%s %s: %#zx, scale %a, zero point %g (%d) is %#x, expected %#x", qobs_dtype_name(dtype),
                         name_of(way), i, scale, z, with, out[i], expected);
        }
    }
}

/* Numbers on the grid do not change: in float for every scale, in bf16 and f16 for powers of two. */
static void test_idempotent(void **state)
{
    enum { N = 2000 };
    static double x[N], once[N], twice[N];
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t f = 0; f < qobs_format_count(); f++) {
            const struct way way = {.format = qobs_format_at(f)};
            const qobs_dtype dtype = dtypes[d];
            if (way.format->bits > 8)
                continue;
            const bool half = qobs_dtype_size(dtype) == 2;
            double scale = half ? 0.25 : round_dtype(dtype, exp2(uniform(-8, 0)));
            const float single = (float)scale;
            const struct qparam_pair p = {dtype == QOBS_F64 ? (void *)&scale : (void *)&single, NULL, NULL};
            const struct quantizer quantizer = quantizer_of(&way);
            enum kernel_dtype index;
            qobs_kernel_dtype_of(dtype, &index);
            for (int64_t i = 0; i < N; i++)
                put(dtype, x, i, round_dtype(dtype, uniform(-20, 20)));
            qobs_fake_quantize_rows_fn *rows = qobs_kernels_active()->fake_quantize_rows[index];
            rows(&quantizer, x, 0, once, 0, 1, N, &p, 0);
            rows(&quantizer, once, 0, twice, 0, 1, N, &p, 0);
            assert_memory_equal(once, twice, N * qobs_dtype_size(dtype));
        }
}

/* Comes last. */
static void test_every_slot(void **state)
{
    assert_int_equal(slots_failed_anywhere(CALLER_QUANTIZE), 0);
}

int main(void)
{
    enum { EACH = 2 * sizeof dtypes / sizeof *dtypes };
    static struct CMUnitTest tests[EACH + 2];
    static char names[EACH][32];
    size_t n = 0;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        snprintf(names[n], sizeof names[n], "kernels, %s", qobs_dtype_name(dtypes[d]));
        tests[n] = (struct CMUnitTest){
            .name = names[n], .test_func = test_kernels, .initial_state = (void *)(uintptr_t)&dtypes[d]};
        n++;
        if (qobs_dtype_size(dtypes[d]) != 2)
            continue;
        snprintf(names[n], sizeof names[n], "every %s", qobs_dtype_name(dtypes[d]));
        tests[n] = (struct CMUnitTest){
            .name = names[n], .test_func = test_every_half, .initial_state = (void *)(uintptr_t)&dtypes[d]};
        n++;
    }
    tests[n++] = (struct CMUnitTest){.name = "idempotent", .test_func = test_idempotent};
    tests[n++] = (struct CMUnitTest){.name = "every slot", .test_func = test_every_slot};
    return _cmocka_run_group_tests("fake-quantize kernels", tests, n, NULL, NULL);
}
