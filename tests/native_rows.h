/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Tables of errors in upstream's own arithmetic: kernels against search_native, and the search by amax against the
 * search of each qparam. Only test_search_kernels.c includes this, after native_search.h. */
#ifndef QOBS_TESTS_NATIVE_ROWS_H
#define QOBS_TESTS_NATIVE_ROWS_H

enum { ROWS_CANDIDATES = 24, ROWS_MOST = 1024 };

/* BF16 numbers of all kinds below `amax`: of any exponent, zeros, and tiny ones that have no row. */
static float draw_element(float amax)
{
    const uint64_t kind = draw() % 8;
    const float x = kind == 0 ? 0 : kind == 1 ? gauss() * 0x1p-12f : gauss() / 4;
    const float limited = fabsf(x) > 1 ? copysignf(1, x) : x;
    return float_of_bits(bits_of_float(limited * amax) & 0xffff0000) * (kind == 2 ? -1 : 1);
}

struct rows_case {
    struct quantizer quantizer;
    struct native_search native;
    struct search_candidates candidates;
    struct row_capacity capacity;
    uint32_t amax;
};

/* Every element of a table is what search_native adds for it, on every instruction set the same. */
static void check_table(const struct rows_case *c, const struct kernel_table *k, struct native_rows *rows)
{
    _Alignas(64) float x[QOBS_SEARCH_LANES] = {0};
    float row[ROWS_CANDIDATES];
    assert_true(qobs_native_rows_fill(k, &c->native, &c->quantizer, &c->candidates, ROWS_CANDIDATES, c->amax,
                                      &c->capacity, rows));
    assert_int_equal(rows->last, c->amax);
    assert_true(rows->first <= rows->symmetric && rows->symmetric <= rows->last);
    for (uint32_t m = rows->first; m <= rows->last; m++)
        for (uint32_t negative = 0; negative < 2; negative++) {
            double sum[ROWS_CANDIDATES] = {0};
            const size_t at =
                m - rows->first + 1 + (negative && m > rows->symmetric ? rows->last - rows->symmetric : 0);
            x[0] = float_of_bits((m | negative << 15) << 16);
            k->search_native(&c->quantizer, &c->native.norm, true, false, x, NULL, 1, &c->candidates, ROWS_CANDIDATES,
                             sum);
            for (size_t i = 0; i < ROWS_CANDIDATES; i++)
                row[i] = (float)sum[i];
            assert_memory_equal(row, rows->row + at * rows->stride, sizeof row);
        }
    x[0] = float_of_bits(c->amax << 16);
    CALL(k, search_native_rows)
    (&c->quantizer, &c->native.norm, x, 1, &c->candidates, ROWS_CANDIDATES, row, ROWS_CANDIDATES);
    check_upper_halves(k->isa, "search_native_rows");
    assert_memory_equal(row, rows->row + (rows->last - rows->first + 1) * rows->stride, sizeof row);
}

static void check_row_sums(const struct rows_case *c, const struct kernel_table *k, const struct native_rows *rows,
                           size_t n, float *sum)
{
    static _Alignas(64) float x[ROWS_MOST];
    double expected[ROWS_CANDIDATES] = {0};
    for (size_t i = 0; i < padded(n); i++)
        x[i] = i < n ? draw_element(float_of_bits(c->amax << 16)) : 0;
    assert_true(CALL(k, search_row_sums)(rows, x, n, sum));
    check_upper_halves(k->isa, "search_row_sums");
    k->search_native(&c->quantizer, &c->native.norm, true, false, x, NULL, n, &c->candidates, ROWS_CANDIDATES,
                     expected);
    for (size_t i = 0; i < ROWS_CANDIDATES; i++)
        if (fabs((double)sum[i] - expected[i]) > row_sums_error(n) * 0x1p-24 * expected[i])
            fail_msg("%s, %zu elements: sum %zu is %.9g, expected %.9g", k->isa, n, i, (double)sum[i], expected[i]);
    x[draw() % n] = float_of_bits((c->amax + 1) << 16) * (draw() % 2 ? 1 : -1);
    float unused[ROWS_CANDIDATES];
    assert_false(k->search_row_sums(rows, x, n, unused));
}

static void check_rows(int bits, double norm, int exponent)
{
    static _Alignas(64) float memory[2][1 << 17];
    static _Alignas(64) float scale[ROWS_CANDIDATES], shift[ROWS_CANDIDATES];
    const int64_t largest = (INT64_C(1) << (bits - 1)) - 1;
    const struct grid_params params = {
        .native = true, .norm = norm, .rounded = true, .quant_min = -largest - 1, .quant_max = largest};
    struct rows_case c = {.candidates = {scale, scale, shift, 1}};
    struct runtime runtime;
    qobs_error error;
    assert_int_equal(qobs_runtime_resolve(&runtime, NULL, &error), QOBS_OK);
    assert_int_equal(qobs_native_search_begin(&c.native, &params, QOBS_BF16, 1, &runtime, &error), QOBS_OK);
    qobs_quantizer_for_integers(&c.quantizer, params.quant_min, params.quant_max, false);
    c.capacity = qobs_native_rows_capacity(&c.native, &c.quantizer, ROWS_CANDIDATES, 0.77f);
    assert_true(c.capacity.rows > 0 && c.capacity.rows * c.capacity.stride <= 1 << 17);
    c.amax = (uint32_t)(draw() % 128) | (uint32_t)(exponent + 127) << 7;
    for (size_t i = 0; i < ROWS_CANDIDATES; i++) {
        const float amax = float_of_bits(c.amax << 16), step = amax / ((float)largest + 0.5f);
        scale[i] = float_of_bf16(bf16_of_float(step * (1 - 0.01f * (float)i)));
        shift[i] = 0x1.8p23f;
    }
    float first[8][ROWS_CANDIDATES];
    const uint64_t start = draw();
    for (size_t k = 0, tables = 0; usable_table(&k); k++) {
        struct native_rows rows;
        state = start;
        c.capacity.memory = memory[tables > 0];
        check_table(&c, qobs_kernel_tables[k], &rows);
        if (tables > 0)
            assert_memory_equal(memory[0], memory[1],
                                (rows.last - rows.first + 2 + rows.last - rows.symmetric) * rows.stride *
                                    sizeof(float));
        for (size_t i = 0; i < 8; i++) {
            float sum[ROWS_CANDIDATES];
            check_row_sums(&c, qobs_kernel_tables[k], &rows, i < 4 ? 128 : draw() % ROWS_MOST + 1, sum);
            if (tables == 0)
                memcpy(first[i], sum, sizeof sum);
            assert_memory_equal(first[i], sum, sizeof sum);
        }
        tables++;
    }
    qobs_native_search_release(&c.native, &runtime);
}

/* Scales that are too small, too large, and a table beyond its capacity. */
static void check_refused(void)
{
    static _Alignas(64) float memory[1 << 17];
    static _Alignas(64) float scale[ROWS_CANDIDATES], shift[ROWS_CANDIDATES];
    const struct grid_params params = {.native = true, .norm = 2, .rounded = true, .quant_min = -8, .quant_max = 7};
    struct rows_case c = {.candidates = {scale, scale, shift, 1}};
    struct runtime runtime;
    struct native_rows rows;
    assert_int_equal(qobs_runtime_resolve(&runtime, NULL, NULL), QOBS_OK);
    assert_int_equal(qobs_native_search_begin(&c.native, &params, QOBS_BF16, 1, &runtime, NULL), QOBS_OK);
    qobs_quantizer_for_integers(&c.quantizer, -8, 7, false);
    c.capacity = qobs_native_rows_capacity(&c.native, &c.quantizer, ROWS_CANDIDATES, 0.77f);
    c.capacity.memory = memory;
    const struct {
        float scale;
        uint32_t amax;
        bool fits;
    } cases[] = {{0x1p-3f, 127 << 7, true},
                 {0x1p-100f, (127 - 97) << 7, false},
                 {0x1p100f, (127 + 103) << 7, false},
                 {0x1p-9f, 127 << 7, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t j = 0; j < ROWS_CANDIDATES; j++) {
            scale[j] = cases[i].scale;
            shift[j] = 0x1.8p23f;
        }
        assert_int_equal(qobs_native_rows_fill(qobs_kernel_tables[0], &c.native, &c.quantizer, &c.candidates,
                                               ROWS_CANDIDATES, cases[i].amax, &c.capacity, &rows),
                         cases[i].fits);
    }
    assert_int_equal(qobs_native_rows_capacity(&c.native, &c.quantizer, NATIVE_ROWS_CANDIDATES + 1, 0.77f).rows, 0);
    assert_int_equal(qobs_native_rows_capacity(&c.native, &c.quantizer, NATIVE_ROWS_CANDIDATES, 1e-6f).rows, 0);
    qobs_native_search_release(&c.native, &runtime);
}

static void test_native_rows(void **unused)
{
    for (int i = 0; i < 12; i++) {
        check_rows(i % 3 == 2 ? 8 : 4, (const double[]){2, 2.4, 3, 2.7}[i % 4], i % 5 * 20 - 40);
        check_rows(3 + i % 4, 2, -3);
    }
    check_refused();
}

/* ---- The search by amax ------------------------------------------------------------------------------------------ */

/* SMALL rows are searched qparam by qparam. COPIES of them have the same results, and are searched by amax. */
enum { SMALL = 120, COPIES = 8, WIDE = 1024, MOST_QPARAMS = SMALL * COPIES * WIDE / 32 };

struct by_amax {
    uint16_t min[MOST_QPARAMS], max[MOST_QPARAMS];
    int32_t step[MOST_QPARAMS];
    double error[MOST_QPARAMS];
    qobs_search_report report;
};

/* Returns the number of qparams. */
static size_t search_rows(const qobs_config *config, const uint16_t *x, int64_t rows, const char *isa, size_t threads,
                          struct by_amax *o)
{
    const int64_t shape[] = {rows, WIDE};
    const qobs_tensor value = {.struct_size = sizeof value, .data = x, .dtype = QOBS_BF16, .ndim = 2, .shape = shape};
    memset(o, 0, sizeof *o);
    search_value(config, &value, isa, threads, o->min, o->max, o->step, o->error, &o->report);
    return call_count(config, &value, NULL);
}

/* Rows whose groups of 32 have few magnitudes, so that they share an amax; some rows are of any magnitude, zeros, tiny,
 * NaN or infinite. */
static void fill_rows(uint16_t *x, bool finite)
{
    for (size_t row = 0; row < SMALL; row++)
        for (size_t i = 0; i < WIDE; i++) {
            const size_t kind = row % 16;
            const float amax = kind == 0 ? expf(gauss() * 9) : kind == 1 ? 0x1p-130f : 0.75f + (float)(row % 3) / 16;
            float v = kind == 2 ? 0 : i % 32 == 7 ? amax : draw_element(amax);
            v = kind == 3 && i == row && !finite ? (row % 2 ? NAN : INFINITY) : v;
            x[row * WIDE + i] = (uint16_t)(bits_of_float(v) >> 16);
        }
    for (size_t copy = 1; copy < COPIES; copy++)
        memcpy(x + copy * SMALL * WIDE, x, SMALL * WIDE * sizeof *x);
}

static void check_by_amax(const char *settings, const uint16_t *x, struct by_amax *expected, struct by_amax *got)
{
    qobs_config *config = config_of(settings);
    const size_t n = search_rows(config, x, SMALL, "scalar", 1, expected);
    assert_true(n > 0 && n * COPIES <= MOST_QPARAMS);
    for (size_t k = 0; k < qobs_isa_count(); k++)
        for (size_t t = 0; t < 3 && qobs_isa_usable(k); t++) {
            if (!meets_threads(k, t))
                continue;
            search_rows(config, x, SMALL * COPIES, qobs_isa_name(k), (size_t[]){1, 2, 7}[t], got);
            assert_int_equal(got->report.stop_step, expected->report.stop_step);
            for (size_t copy = 0; copy < COPIES; copy++) {
                assert_memory_equal(got->min + copy * n, expected->min, n * sizeof *got->min);
                assert_memory_equal(got->max + copy * n, expected->max, n * sizeof *got->max);
                assert_memory_equal(got->step + copy * n, expected->step, n * sizeof *got->step);
                assert_memory_equal(got->error + copy * n, expected->error, n * sizeof *got->error);
            }
        }
    qobs_config_destroy(config);
}

static void test_by_amax(void **unused)
{
    static uint16_t x[SMALL * COPIES * WIDE];
    static struct by_amax expected, got;
    static const char *const settings[] = {
        "num_bits=4 strategy=group group_size=128 norm=2",
        "num_bits=4 strategy=group group_size=32 norm=3 nonfinite=ignore",
        "num_bits=4 strategy=group group_size=64 norm=2 patience=1 maxshrink=0.9 grid=20",
        "num_bits=8 strategy=channel norm=2",
        "num_bits=5 strategy=group group_size=512 norm=3 nonfinite=propagate patience=0",
        "num_bits=4 strategy=group group_size=128 norm=2.4 nonfinite=ignore",
#ifdef QOBS_SLEEF
        "num_bits=8 strategy=channel norm=2.7 maxshrink=0.5",
#endif
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        fill_rows(x, !strstr(settings[i], "nonfinite"));
        check_by_amax(settings[i], x, &expected, &got);
    }
    assert_int_equal(qobs_isa_select(NULL, NULL), QOBS_OK);
}

/* The sum of a group is in the middle of two numbers of BF16, 1 + 2^-8, but for many small errors. Floats lose all of
 * them. */
static void test_uncertain_sum(void **unused)
{
    static uint16_t x[SMALL * COPIES * WIDE];
    static struct by_amax expected, got;
    const char *const settings = "num_bits=4 strategy=group group_size=128 norm=2 maxshrink=0.01 grid=100";
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        const size_t at = i % 128;
        const float v = at < 4 ? 7.5f : at == 4 ? 3 + 0x1p-4f : 0x1p-14f;
        x[i] = (uint16_t)(bits_of_float(v) >> 16);
    }
    check_by_amax(settings, x, &expected, &got);
    assert_true(expected.error[0] == 1 + 0x1p-7);
    assert_int_equal(qobs_isa_select(NULL, NULL), QOBS_OK);
}

#endif
