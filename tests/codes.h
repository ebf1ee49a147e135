/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The kernels that quantize to codes against slow code: a number at a time, the nearest number of the format by trying
 * all. Only test_quantize.c includes this. */
#ifndef QOBS_TESTS_CODES_H
#define QOBS_TESTS_CODES_H

struct code_way {
    enum code_kind kind;
    int bits; /* of integers */
    bool in_float;
};

static struct quantizer code_quantizer(const struct code_way *way)
{
    struct quantizer q;
    if (way->kind == QOBS_CODE_INTEGER)
        qobs_quantizer_for_integers(&q, -(INT64_C(1) << (way->bits - 1)), (INT64_C(1) << (way->bits - 1)) - 1, false);
    else
        qobs_quantizer_for_format(&q, qobs_format_at(way->kind == QOBS_CODE_E4M3 ? FORMAT_E4M3 : FORMAT_E2M1));
    q.in_float = way->in_float;
    return q;
}

static double code_magnitude(enum code_kind kind, unsigned code)
{
    const unsigned digits = kind == QOBS_CODE_E4M3 ? 3 : 1, exponent = code >> digits,
                   mantissa = code & ((1u << digits) - 1);
    const int bias = kind == QOBS_CODE_E4M3 ? 7 : 1;
    const double fraction = ldexp(mantissa, -(int)digits);
    return exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1 + fraction, (int)exponent - bias);
}

/* The code of the nearest number, ties to the even code. */
static unsigned nearest_code(enum code_kind kind, double magnitude)
{
    const unsigned last = kind == QOBS_CODE_E4M3 ? 126 : 7;
    unsigned best = 0;
    for (unsigned code = 1; code <= last; code++) {
        const double distance = fabs(code_magnitude(kind, code) - magnitude);
        const double least = fabs(code_magnitude(kind, best) - magnitude);
        if (distance < least || (distance == least && code % 2 == 0))
            best = code;
    }
    return best;
}

static unsigned char slow_code(const struct code_way *way, const struct quantizer *q, qobs_dtype dtype, double x,
                               double scale, const double *zero_point)
{
    const qobs_dtype arithmetic = way->in_float && dtype != QOBS_F64 ? QOBS_F32 : dtype;
    double y = round_dtype(arithmetic, x / scale);
    if (zero_point)
        y = round_dtype(arithmetic, y + *zero_point);
    y = y < q->quant_min ? q->quant_min : y > q->quant_max ? q->quant_max : y;
    if (isnan(y))
        return way->kind == QOBS_CODE_E4M3 ? 0x7f : 0;
    if (dtype == QOBS_F64 && q->through_float)
        y = (double)(float)y;
    if (way->kind == QOBS_CODE_INTEGER)
        return (unsigned char)(int)rint(y);
    const unsigned code = nearest_code(way->kind, fabs(y));
    if (way->kind == QOBS_CODE_E4M3)
        return (unsigned char)(code | (signbit(y) ? 0x80 : 0));
    return (unsigned char)(code | (y < 0 ? 8 : 0));
}

enum { CODE_ROWS = 5, CODE_MOST = 150 };

static void check_codes(const struct code_way *way, qobs_dtype dtype, bool columns, bool zero_points, size_t length)
{
    static unsigned char x[CODE_ROWS * CODE_MOST * 8 + 8], expected[CODE_ROWS * (CODE_MOST + 3)],
        codes[sizeof expected];
    static double scales[CODE_MOST], zeros[CODE_MOST], wide[2][CODE_MOST];
    const size_t element = qobs_dtype_size(dtype), offset = random_bits() % 8, step = length + 3;
    const struct quantizer q = code_quantizer(way);
    const struct way limits = {.format = NULL, .quant_min = (int64_t)q.quant_min, .quant_max = (int64_t)q.quant_max};
    for (size_t i = 0; i < CODE_MOST; i++) {
        scales[i] = random_scale(way->in_float ? QOBS_F32 : dtype);
        zeros[i] = zero_points ? round_dtype(dtype, random_zero_point(&limits)) : -0.0;
        put_real(dtype, wide[0], i, scales[i]);
        put_real(dtype, wide[1], i, zeros[i]);
    }
    memset(expected, 0x5a, sizeof expected);
    for (size_t row = 0; row < CODE_ROWS; row++)
        for (size_t j = 0; j < length; j++) {
            const size_t at = columns ? j : row;
            const double value = random_x(dtype, scales[at], q.quant_max);
            unsigned char number[8];
            put(dtype, number, 0, value);
            memcpy(x + offset + (row * length + j) * element, number, element);
            expected[row * step + j] = slow_code(way, &q, dtype, value, scales[at], zero_points ? &zeros[at] : NULL);
        }
    const struct qparam_pair p = {wide[0], zero_points || columns ? wide[1] : NULL, NULL};
    const ptrdiff_t stride = (ptrdiff_t)(length * element);
    enum kernel_dtype index;
    qobs_kernel_dtype_of(dtype, &index);
    for (size_t t = 0; qobs_kernel_tables[t]; t++) {
        const struct kernel_table *table = qobs_kernel_tables[t];
        if (!table->usable())
            continue;
        memset(codes, 0x5a, sizeof codes);
        if (columns)
            CALL(table, quantize_columns[index])
            (&q, way->kind, x + offset, stride, codes, (ptrdiff_t)step, CODE_ROWS, length, &p);
        else
            CALL(table, quantize_rows[index])
            (&q, way->kind, x + offset, stride, codes, (ptrdiff_t)step, CODE_ROWS, length, &p, 1);
        check_upper_halves(table->isa, columns ? "quantize_columns" : "quantize_rows");
        for (size_t i = 0; i < sizeof codes; i++)
            if (codes[i] != expected[i])
                fail_msg("%s: kind %d, %d bits, dtype %d%s%s: code %zu of rows of %zu is %u, expected %u", table->isa,
                         (int)way->kind, way->bits, (int)dtype, columns ? ", columns" : "",
                         zero_points ? ", zero points" : "", i, length, codes[i], expected[i]);
    }
}

static void test_codes(void **state)
{
    static const struct code_way ways[] = {{QOBS_CODE_INTEGER, 2, false}, {QOBS_CODE_INTEGER, 4, false},
                                           {QOBS_CODE_INTEGER, 8, false}, {QOBS_CODE_INTEGER, 8, true},
                                           {QOBS_CODE_E4M3, 0, false},    {QOBS_CODE_E4M3, 0, true},
                                           {QOBS_CODE_E2M1, 0, false},    {QOBS_CODE_E2M1, 0, true}};
    static const qobs_dtype all[] = {QOBS_F32, QOBS_BF16, QOBS_F16, QOBS_F64};
    (void)state;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (size_t d = 0; d < sizeof all / sizeof *all; d++)
            for (int variant = 0; variant < 4; variant++)
                for (size_t length = 0; length < CODE_MOST; length += 1 + length / 4)
                    check_codes(&ways[w], all[d], variant & 1, variant & 2, length);
}

/* Every BF16 and F16 number under scales of its dtype: the kernels of all instruction sets give the slow codes. */
static void test_codes_of_halves(void **state)
{
    static uint16_t x[65536];
    static unsigned char codes[65536];
    static const struct code_way ways[] = {{QOBS_CODE_INTEGER, 4, false},
                                           {QOBS_CODE_INTEGER, 8, false},
                                           {QOBS_CODE_E4M3, 0, false},
                                           {QOBS_CODE_E2M1, 0, false}};
    static const float scales[] = {1, 0.0078125f, 0.01171875f, 0.6640625f};
    (void)state;
    for (size_t i = 0; i < 65536; i++)
        x[i] = (uint16_t)i;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
            for (int half = 0; half < 2; half++) {
                const qobs_dtype dtype = half ? QOBS_F16 : QOBS_BF16;
                const struct quantizer q = code_quantizer(&ways[w]);
                const struct qparam_pair p = {&scales[s], NULL, NULL};
                enum kernel_dtype index;
                qobs_kernel_dtype_of(dtype, &index);
                for (size_t t = 0; qobs_kernel_tables[t]; t++) {
                    if (!qobs_kernel_tables[t]->usable())
                        continue;
                    CALL(qobs_kernel_tables[t], quantize_rows[index])
                    (&q, ways[w].kind, x, 0, codes, 0, 1, 65536, &p, 0);
                    for (size_t i = 0; i < 65536; i++) {
                        const double value = (double)(half ? float_of_f16(x[i]) : float_of_bf16(x[i]));
                        const unsigned char wanted = slow_code(&ways[w], &q, dtype, value, (double)scales[s], NULL);
                        if (codes[i] != wanted)
                            fail_msg("%s: %s %#x / %g is %u, expected %u", qobs_kernel_tables[t]->isa,
                                     qobs_dtype_name(dtype), (unsigned)i, (double)scales[s], codes[i], wanted);
                    }
                }
            }
}

#endif
