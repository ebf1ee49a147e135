/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The kernel of searches in upstream's own arithmetic against slow code with one rounding for each operation. Only
 * test_search_kernels.c includes this. */
#ifndef QOBS_TESTS_NATIVE_SEARCH_H
#define QOBS_TESTS_NATIVE_SEARCH_H

enum { NATIVE_MOST = 272, NATIVE_CANDIDATES = 8 };

static double round_to(qobs_dtype dtype, double v) { return qobs_round_to(dtype, v); }

static double slow_power(const struct native_search *n, qobs_dtype dtype, double error, double exponent)
{
    const float e = fabsf((float)error);
    if (n->norm.fine)
        return (double)(float)pow((double)e, exponent);
    if (!n->norm.table)
        return exponent == 1 ? (double)e : exponent == 2 ? (double)(e * e) : (double)(e * e * e);
    const double power = exponent == 1   ? (double)e
                         : exponent == 2 ? (double)(e * e)
                         : exponent == 3 ? (double)(e * e * e)
                                         : (double)(float)pow((double)e, round_to(dtype, exponent));
    return round_to(dtype, power);
}

static double slow_native(const struct native_search *n, const struct quantizer *q, const qobs_format *format,
                          qobs_dtype dtype, double exponent, const float *x, const float *weight, size_t count,
                          double scale, double zero_point, bool shifted)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double v = round_to(dtype, (double)x[i] / scale);
        if (shifted)
            v = round_to(dtype, v + zero_point);
        v = v < q->quant_min ? q->quant_min : v > q->quant_max ? q->quant_max : v;
        v = format ? qobs_format_round(format, v, true) : rint(v);
        if (shifted)
            v = round_to(dtype, v - zero_point);
        double error = (double)((float)round_to(dtype, v * scale) - x[i]);
        error = n->norm.table ? round_to(dtype, error) : error;
        const double power = slow_power(n, dtype, error, exponent);
        sum += weight ? (double)((float)power * weight[i]) : power;
    }
    return sum;
}

static float random_half(qobs_dtype dtype, double low, double high)
{
    return (float)round_to(dtype, low + (high - low) * ((double)rand() / RAND_MAX));
}

static void check_native(qobs_dtype dtype, const qobs_format *format, int bits, double exponent, bool importance,
                         bool rounded, bool shifted, size_t count)
{
    _Alignas(64) static float x[NATIVE_MOST], weight[NATIVE_MOST], scale[NATIVE_CANDIDATES], shift[NATIVE_CANDIDATES];
    const struct grid_params params = {.native = true,
                                       .norm = exponent,
                                       .importance = importance,
                                       .rounded = rounded,
                                       .quant_min = -(1 << (bits - 1)),
                                       .quant_max = (1 << (bits - 1)) - 1,
                                       .format = format};
    struct runtime runtime;
    struct native_search n;
    struct quantizer q;
    qobs_error error;
    assert_int_equal(qobs_runtime_resolve(&runtime, NULL, &error), QOBS_OK);
    assert_int_equal(qobs_native_search_begin(&n, &params, dtype, 1, &runtime, &error), QOBS_OK);
    assert_true(n.active);
    if (format)
        qobs_quantizer_for_format(&q, format);
    else
        qobs_quantizer_for_integers(&q, -(1 << (bits - 1)), (1 << (bits - 1)) - 1, false);
    memset(x, 0, sizeof x);
    memset(weight, 0, sizeof weight);
    for (size_t i = 0; i < count; i++) {
        x[i] = random_half(dtype, -0.5, 0.5);
        weight[i] = random_half(QOBS_F32, 0, 2);
    }
    for (size_t c = 0; c < NATIVE_CANDIDATES; c++) {
        scale[c] = random_half(dtype, 0.4, 1) / (float)q.quant_max;
        scale[c] = (float)round_to(dtype, (double)scale[c]);
        shift[c] = shifted ? (float)(rand() % 5 - 2) : 0;
    }
    float offset[NATIVE_CANDIDATES];
    for (size_t c = 0; c < NATIVE_CANDIDATES; c++)
        offset[c] = format ? shift[c] : shift[c] + 0x1.8p23f;
    const struct search_candidates candidates = {scale, scale, offset, 1};
    double first[NATIVE_CANDIDATES];
    const bool weighted = importance || (shifted && format);
    for (size_t t = 0, tables = 0; usable_table(&t); t++) {
        double sum[NATIVE_CANDIDATES] = {0};
        CALL(qobs_kernel_tables[t], search_native)
        (&q, &n.norm, n.is_bf16, shifted, x, weighted ? weight : NULL, count, &candidates, NATIVE_CANDIDATES, sum);
        check_upper_halves(qobs_kernel_tables[t]->isa, "search_native");
        if (tables++ == 0)
            memcpy(first, sum, sizeof sum);
        assert_memory_equal(first, sum, sizeof sum);
    }
    for (size_t c = 0; c < NATIVE_CANDIDATES; c++) {
        const double slow = slow_native(&n, &q, format, dtype, exponent, x, weighted ? weight : NULL, count,
                                        (double)scale[c], (double)shift[c], shifted);
        /* The fine table is not the nearest float, but near. */
        const double tolerance = n.norm.fine ? 3e-7 : 1e-13;
        if (fabs(first[c] - slow) > tolerance * slow)
            fail_msg("%s, %s, norm %g%s%s, %zu elements: sum %zu is %.17g, expected %.17g", qobs_dtype_name(dtype),
                     format ? qobs_format_name(format) : "integers", exponent, importance ? ", importance" : "",
                     shifted ? ", zero points" : "", count, c, first[c], slow);
        assert_true(n.norm.fine || qobs_native_error(&n, first[c]) == qobs_native_error(&n, slow));
    }
    qobs_native_search_release(&n, &runtime);
}

static void test_native(void **unused)
{
    static const double exponents[] = {1, 2, 3, 2.4, 2.7};
    const qobs_format *const formats[] = {NULL, NULL, qobs_format_find("fp8_e4m3"), qobs_format_find("fp4")};
    for (size_t format = 0; format < 4; format++)
        for (size_t e = 0; e < 5; e++)
            for (int variant = 0; variant < 16; variant++) {
                const bool importance = variant & 2, rounded = !importance || variant & 8;
                if (formats[format] && formats[format] == formats[3] && variant & 4)
                    continue; /* fp4 has no zero points */
                for (size_t count = 1; count <= NATIVE_MOST; count += 1 + count / 2)
                    check_native(variant & 1 ? QOBS_F16 : QOBS_BF16, formats[format], format ? 8 : 4, exponents[e],
                                 importance, rounded, variant & 4, count);
            }
}

#endif
