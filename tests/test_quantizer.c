/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The prepared quantizer and qobs_qparams_from_tensor against an observer and qobs_quantize or qobs_fake_quantize, bit
 * for bit: random configurations, shapes, strides, splits and contents on every instruction set. One quantizer in many
 * threads, and without memory. */
#include <math.h>

#include "observing.h"
#include "number/convert.h"
#include "qobs/quantizer.h"
#include "qobs/stateless.h"
#include "repeats.h"
#include "threads.h"

enum { MAX_ROWS = 70, GUARD = 0x5a };

static uint64_t seed = 1;

static uint32_t random_bits(void)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (uint32_t)(seed >> 33);
}

static int64_t below(int64_t n) { return (int64_t)(random_bits() % (uint32_t)n); }

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

/* unit: rows that share qparams, 0 all. `columns` is a multiple of `multiple`. */
static const struct kind {
    const char *settings;
    int64_t unit, multiple;
    bool packs;
} kinds[] = {
    {"num_bits=8 strategy=channel", 1, 1, false},
    {"num_bits=8 strategy=channel symmetric=false", 1, 1, false},
    {"num_bits=4 strategy=channel", 1, 8, true},
    {"num_bits=3 strategy=channel symmetric=false", 1, 1, false},
    {"num_bits=8 type=float strategy=channel", 1, 1, false},
    {"num_bits=8 type=float group_size=128", 1, 128, false},
    {"num_bits=4 group_size=32", 1, 32, true},
    {"num_bits=4 group_size=32 symmetric=false", 1, 32, true},
    {"num_bits=8 group_size=48", 1, 48, false},
    {"num_bits=8 group_size=7", 1, 7, false},
    {"num_bits=4 group_size=24 ragged=true", 1, 8, true},
    {"num_bits=8 group_size=33 ragged=true symmetric=false", 1, 1, false},
    {"num_bits=8 type=float group_size=32 scale_dtype=uint8", 1, 32, false},
    {"num_bits=4 type=float group_size=32 scale_dtype=uint8", 1, 32, true},
    {"num_bits=4 type=float strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn", 1, 16, true},
    {"num_bits=4 type=float strategy=tensor_group group_size=16 version=2025-10", 1, 16, true},
    {"num_bits=4 type=float strategy=channel", 1, 8, true},
    {"num_bits=8 strategy=tensor", 0, 1, false},
    {"num_bits=8 strategy=tensor symmetric=false", 0, 1, false},
    {"num_bits=4 strategy=tensor", 0, 8, true},
    {"num_bits=8 type=float strategy=tensor", 0, 1, false},
    {"num_bits=8 type=float block_structure=[16,24] strategy=block", 16, 1, false},
    {"num_bits=4 block_structure=[8,16] strategy=block symmetric=false", 8, 8, true},
    {"num_bits=8 block_structure=[5,7] strategy=block", 5, 1, false},
    {"num_bits=2 strategy=channel", 1, 1, false},
    {"vllm.scaled_int8_quant", 1, 1, false},
    {"vllm.scaled_int8_quant symmetric=false", 1, 1, false},
    {"vllm.scaled_int8_quant symmetric=false build=avx2", 1, 1, false},
    {"vllm.scaled_int8_quant group_shape=PER_TENSOR build=avx2", 0, 1, false},
    {"vllm.QuantFP8", 1, 1, false},
    {"vllm.QuantFP8 group_shape=PER_TENSOR", 0, 1, false},
    {"vllm.QuantFP8 group_size=16", 1, 16, false},
    {"vllm.QuantFP8 group_size=8 use_ue8m0=true", 1, 8, false},
    {"vllm.per_token_group_quant_fp8 group_size=16", 1, 16, false},
    {"vllm.per_token_group_quant_fp8 group_size=8 use_ue8m0=true kernel=triton", 1, 8, false},
    {"vllm.scaled_fp4_quant", 1, 16, true},
    {"num_bits=8 block_structure=[5,7] strategy=block version=2025-09", 5, 1, false},
    {"num_bits=8 group_size=20 version=2025-09", 1, 1, false},
    {"num_bits=8 strategy=tensor version=2025-09 symmetric=false", 0, 1, false},
    {"num_bits=8 base_name=input strategy=tensor", 0, 1, false},
    {"num_bits=8 base_name=input strategy=token dynamic=true symmetric=false", 0, 1, false},
    {"num_bits=8 base_name=input group_size=16", 0, 16, false},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* Settings with their preset, whose codes are made by one product each. */
static bool has_products(const struct kind *k) { return strncmp(k->settings, "vllm.", 5) == 0; }

/* Version 2025-09 has one preset without a search. */
static const char *preset_of(const struct kind *k)
{
    return strstr(k->settings, "2025-09")     ? "minmax base_name=weight"
           : strstr(k->settings, "base_name") ? "memoryless_minmax"
                                              : "memoryless_minmax base_name=weight";
}

struct matrix {
    qobs_dtype dtype;
    int64_t rows, columns, stride;
    unsigned char *data; /* of the first row */
    unsigned char *memory;
};

static double random_number(double scale, int odd)
{
    static const double special[] = {0, -0.0, 0x1p-140, -0x1p-133, 0x1p-24, 60000, -0x1p100};
    if (odd > 0 && below(16) == 0)
        return special[below(sizeof special / sizeof *special)];
    return scale * ((double)below(20001) / 10000 - 1);
}

/* odd: 0 plain, 1 special numbers, 2 NaN and infinities too. */
static struct matrix make_matrix(qobs_dtype dtype, int64_t rows, int64_t columns, int odd)
{
    const int64_t element = (int64_t)qobs_dtype_size(dtype), gap = below(3) == 0 ? below(40) : 0;
    struct matrix m = {.dtype = dtype, .rows = rows, .columns = columns, .stride = columns * element + gap};
    m.memory = malloc((size_t)(rows * m.stride) + 8);
    assert_non_null(m.memory);
    m.data = m.memory + below(4);
    for (int64_t i = 0; i < rows; i++) {
        const double scale = below(12) == 0 ? 0 : ldexp(1, (int)below(24) - 12);
        for (int64_t k = 0; k < columns; k++)
            qobs_put_element(m.data + i * m.stride + k * element, dtype, random_number(scale, odd));
    }
    static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int64_t n = odd == 2 ? 1 + below(3) : 0; n > 0; n--)
        qobs_put_element(m.data + below(rows) * m.stride + below(columns) * element, dtype, bad[below(3)]);
    return m;
}

/* Scales, zero points, codes, sums: what either way gives. */
struct answer {
    unsigned char *scale, *zero_point, *codes;
    float global_scale;
    double squared_error, energy;
    int status;
    int observed; /* status of the observation alone */
    char message[252];
};

struct given {
    char text[160];
    const struct kind *kind;
    bool packed, dequantized;
    qobs_config *config;
    const qobs_executor *executor;
};

static void put_text(struct given *g, const char *preset, const char *nonfinite)
{
    const bool own = has_products(g->kind);
    snprintf(g->text, sizeof g->text, "%s%s %s nonfinite=%s", own ? "" : "llmc.", own ? g->kind->settings : preset,
             own ? "" : g->kind->settings, nonfinite);
}

static void release_answer(struct answer *a)
{
    free(a->scale);
    free(a->zero_point);
    free(a->codes);
}

static struct answer make_answer(const qobs_quantized_layout *layout)
{
    struct answer a = {.scale = malloc(layout->scale_size + 1),
                       .zero_point = malloc(layout->zero_point_size + 1),
                       .codes = malloc(layout->codes_size + 1)};
    assert_true(a.scale && a.zero_point && a.codes);
    memset(a.scale, GUARD, layout->scale_size + 1);
    memset(a.zero_point, GUARD, layout->zero_point_size + 1);
    memset(a.codes, GUARD, layout->codes_size + 1);
    return a;
}

/* ---- Two calls --------------------------------------------------------------------------------------------------- */

static int quantize_by(const struct given *g, const struct matrix *m, const qobs_quantized_layout *l, struct answer *a,
                       bool zero_points)
{
    const int64_t shape[] = {m->rows, m->columns}, strides[] = {m->stride, (int64_t)qobs_dtype_size(m->dtype)},
                  count[] = {(int64_t)l->count};
    const qobs_tensor value = {sizeof value, m->data, m->dtype, 2, shape, strides};
    const qobs_tensor scale = {sizeof scale, a->scale, l->scale_dtype, 1, count, NULL};
    const qobs_tensor zero_point = {sizeof zero_point, a->zero_point, l->zero_point_dtype, 1, count, NULL};
    if (g->dequantized) {
        const qobs_fake_quantize_args args = {.struct_size = sizeof args,
                                              .config = g->config,
                                              .value = &value,
                                              .scale = &scale,
                                              .zero_point = zero_points ? &zero_point : NULL,
                                              .global_scale = l->has_global_scale ? &a->global_scale : NULL,
                                              .out = a->codes,
                                              .out_size = l->codes_size};
        return qobs_fake_quantize(&args, &error);
    }
    const qobs_quantize_args args = {.struct_size = sizeof args,
                                     .config = g->config,
                                     .value = &value,
                                     .scale = &scale,
                                     .zero_point = zero_points ? &zero_point : NULL,
                                     .global_scale = l->has_global_scale ? &a->global_scale : NULL,
                                     .codes = a->codes,
                                     .codes_size = l->codes_size,
                                     .squared_error = has_products(g->kind) ? NULL : &a->squared_error,
                                     .energy = has_products(g->kind) ? NULL : &a->energy,
                                     .packed = g->packed};
    return qobs_quantize(&args, &error);
}

/* By an observer: qobs_qparams_from_tensor may use a quantizer. */
static int observe_one(const char *text, const qobs_tensor *value, const qobs_qparam_buffers *out)
{
    qobs_observer *o = NULL;
    assert_ok(qobs_observer_open(&o, text, NULL, &error));
    int status = qobs_observer_observe(o, value, NULL, &error);
    if (status == QOBS_OK)
        status = qobs_qparams_from_observer(o, out, &error);
    qobs_observer_destroy(o);
    return status;
}

static struct answer in_two_calls(const struct given *g, const struct matrix *m, const qobs_quantized_layout *l)
{
    const int64_t shape[] = {m->rows, m->columns}, strides[] = {m->stride, (int64_t)qobs_dtype_size(m->dtype)};
    const qobs_tensor value = {sizeof value, m->data, m->dtype, 2, shape, strides};
    struct answer a = make_answer(l);
    const qobs_qparam_buffers out = {.struct_size = sizeof out,
                                     .scale = a.scale,
                                     .scale_size = l->scale_size,
                                     .zero_point = a.zero_point,
                                     .zero_point_size = l->zero_point_size,
                                     .global_scale = &a.global_scale};
    a.status = a.observed = observe_one(g->text, &value, &out);
    if (a.status == QOBS_OK) /* a global scale of infinity, which is 0, quantizes nothing */
        a.status = quantize_by(g, m, l, &a, l->has_zero_point);
    snprintf(a.message, sizeof a.message, "%s", error.message);
    return a;
}

/* ---- The quantizer ----------------------------------------------------------------------------------------------- */

static qobs_quantizer *make_quantizer(const struct given *g, const struct matrix *m, bool dynamic, void *memory)
{
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = g->executor};
    const qobs_quantizer_args args = {.struct_size = sizeof args,
                                      .config = g->config,
                                      .dtype = m->dtype,
                                      .columns = m->columns,
                                      .dynamic = dynamic,
                                      .packed = g->packed,
                                      .dequantized = g->dequantized,
                                      .runtime = &runtime};
    qobs_quantizer *q = NULL;
    if (memory)
        assert_ok(qobs_quantizer_create_in(&q, memory, qobs_quantizer_size(), &args, &error));
    else
        assert_ok(qobs_quantizer_create(&q, &args, &error));
    return q;
}

static qobs_quantized_layout layout_of(const qobs_quantizer *q, int64_t rows)
{
    qobs_quantized_layout layout = {.struct_size = sizeof layout};
    assert_ok(qobs_quantizer_layout(q, rows, &layout, &error));
    return layout;
}

static qobs_quantizer_run_args run_of(const struct matrix *m, const qobs_quantized_layout *l, struct answer *a)
{
    return (qobs_quantizer_run_args){.struct_size = sizeof(qobs_quantizer_run_args),
                                     .rows = m->rows,
                                     .value = m->data,
                                     .value_stride = m->stride,
                                     .codes = a->codes,
                                     .codes_size = l->codes_size,
                                     .scale = a->scale,
                                     .scale_size = l->scale_size,
                                     .zero_point = a->zero_point,
                                     .zero_point_size = l->zero_point_size,
                                     .global_scale = l->has_global_scale ? &a->global_scale : NULL};
}

/* Runs rows [from, to), whose qparams are those of whole units. */
static int run_part(const qobs_quantizer *q, const struct kind *k, const struct matrix *m, struct answer *a,
                    int64_t from, int64_t to)
{
    struct matrix part = *m;
    part.rows = to - from;
    part.data += from * m->stride;
    const qobs_quantized_layout l = layout_of(q, part.rows), before = layout_of(q, from);
    qobs_quantizer_run_args run = run_of(&part, &l, a);
    assert_true(k->unit == 0 || from % k->unit == 0);
    run.scale = a->scale + before.scale_size;
    run.zero_point = a->zero_point + before.zero_point_size;
    run.codes = a->codes + before.codes_size;
    return qobs_quantizer_run(q, &run, &error);
}

static void expect_same(const struct given *g, const struct matrix *m, const char *how, const void *a, const void *b,
                        size_t size)
{
    if (memcmp(a, b, size) == 0)
        return;
    size_t at = 0;
    while (((const unsigned char *)a)[at] == ((const unsigned char *)b)[at])
        at++;
    fail_msg("%s, %s %s%s, %lld x %lld, stride %lld, %s: byte %zu of %zu differs", g->text, qobs_dtype_name(m->dtype),
             g->packed ? " packed" : "", g->dequantized ? " dequantized" : "", (long long)m->rows,
             (long long)m->columns, (long long)m->stride, how, at, size);
}

static void compare(const struct given *g, const struct matrix *m, const char *how, const struct answer *got,
                    const struct answer *expected, const qobs_quantized_layout *l)
{
    expect_same(g, m, how, got->scale, expected->scale, l->scale_size + 1);
    expect_same(g, m, how, got->zero_point, expected->zero_point, l->zero_point_size + 1);
    expect_same(g, m, how, got->codes, expected->codes, l->codes_size + 1);
}

static void expect_counts(const struct matrix *m, const qobs_counts *counts)
{
    const int64_t element = (int64_t)qobs_dtype_size(m->dtype);
    uint64_t nan = 0, inf = 0;
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t k = 0; k < m->columns; k++) {
            const double x = qobs_element(m->data + i * m->stride + k * element, m->dtype);
            nan += isnan(x) != 0;
            inf += isinf(x) != 0;
        }
    assert_int_equal(counts->nan, nan);
    assert_int_equal(counts->inf, inf);
    assert_int_equal(counts->elements, m->rows * m->columns);
}

static void test_dynamic(const struct given *g, const struct matrix *m, const struct answer *expected)
{
    unsigned char memory[4096];
    assert_true(qobs_quantizer_size() <= sizeof memory);
    qobs_quantizer *q = make_quantizer(g, m, true, below(2) ? memory + below(17) : NULL);
    const qobs_quantized_layout l = layout_of(q, m->rows);
    struct answer a = make_answer(&l);
    a.global_scale = expected->status == QOBS_ERROR_NONFINITE ? 1 : expected->global_scale; /* then there is none */
    qobs_quantizer_run_args run = run_of(m, &l, &a);
    qobs_counts counts = {.struct_size = sizeof counts};
    run.counts = &counts;
    a.status = qobs_quantizer_run(q, &run, &error);
    assert_int_equal(a.status, expected->status);
    assert_string_equal(error.message, expected->message);
    if (a.status == QOBS_OK) {
        compare(g, m, "dynamic", &a, expected, &l);
        expect_counts(m, &counts);
    }
    release_answer(&a);
    a = make_answer(&l);
    a.global_scale = expected->global_scale;
    run = run_of(m, &l, &a);
    if (expected->status == QOBS_OK && !g->dequantized && !has_products(g->kind)) { /* with sums */
        run.squared_error = &a.squared_error;
        run.energy = &a.energy;
        assert_ok(qobs_quantizer_run(q, &run, &error));
        compare(g, m, "dynamic with sums", &a, expected, &l);
        expect_same(g, m, "squared error", &a.squared_error, &expected->squared_error, sizeof a.squared_error);
        expect_same(g, m, "energy", &a.energy, &expected->energy, sizeof a.energy);
    }
    if (expected->status == QOBS_OK && g->kind->unit > 0) { /* in calls */
        struct answer b = make_answer(&l);
        b.global_scale = expected->global_scale;
        for (int64_t from = 0, to; from < m->rows; from = to) {
            to = from + g->kind->unit * (1 + below(m->rows));
            to = to < m->rows ? to : m->rows;
            assert_ok(run_part(q, g->kind, m, &b, from, to));
        }
        compare(g, m, "split", &b, expected, &l);
        release_answer(&b);
    }
    if (!below(4)) { /* all in one function */
        const int64_t shape[] = {m->rows, m->columns}, strides[] = {m->stride, (int64_t)qobs_dtype_size(m->dtype)};
        const qobs_tensor value = {sizeof value, m->data, m->dtype, 2, shape, strides};
        struct answer b = make_answer(&l);
        const qobs_qparam_buffers out = {sizeof out,   b.scale,           l.scale_size,
                                         b.zero_point, l.zero_point_size, &b.global_scale};
        assert_int_equal(qobs_qparams_from_tensor(g->text, &value, &out, NULL, &error), expected->observed);
        if (expected->observed == QOBS_OK) {
            expect_same(g, m, "qparams_from_tensor", b.scale, expected->scale, l.scale_size + 1);
            expect_same(g, m, "qparams_from_tensor", b.zero_point, expected->zero_point, l.zero_point_size + 1);
            expect_same(g, m, "global scale", &b.global_scale, &expected->global_scale, sizeof b.global_scale);
        }
        release_answer(&b);
    }
    if (expected->status == QOBS_OK) { /* scales alone */
        struct answer b = make_answer(&l);
        b.global_scale = expected->global_scale;
        run = run_of(m, &l, &b);
        run.codes = NULL;
        run.codes_size = 0;
        assert_ok(qobs_quantizer_run(q, &run, &error));
        expect_same(g, m, "scales", b.scale, expected->scale, l.scale_size + 1);
        release_answer(&b);
    }
    release_answer(&a);
    qobs_quantizer_destroy(q);
}

/* Rows of codes with gaps, which stay as they are. */
static void test_gaps(const struct given *g, const struct matrix *m, const qobs_quantizer *q,
                      const struct answer *expected, const qobs_quantized_layout *l)
{
    struct answer a = *expected;
    const size_t stride = l->row_size + (size_t)below(20), size = stride * (size_t)m->rows;
    unsigned char *codes = malloc(size);
    assert_non_null(codes);
    memset(codes, GUARD, size);
    qobs_quantizer_run_args run = run_of(m, l, &a);
    run.codes = codes;
    run.codes_stride = (int64_t)stride;
    run.codes_size = size;
    if (!l->has_zero_point) {
        run.zero_point = NULL;
        run.zero_point_size = 0;
    }
    assert_ok(qobs_quantizer_run(q, &run, &error));
    for (int64_t i = 0; i < m->rows; i++) {
        const unsigned char *row = codes + (size_t)i * stride;
        expect_same(g, m, "gaps", row, expected->codes + (size_t)i * l->row_size, l->row_size);
        for (size_t k = l->row_size; k < stride; k++)
            expect_same(g, m, "between rows", row + k, "\x5a", 1);
    }
    free(codes);
}

static void test_static(const struct given *g, const struct matrix *m, struct answer *expected)
{
    qobs_quantizer *q = make_quantizer(g, m, false, NULL);
    const qobs_quantized_layout l = layout_of(q, m->rows);
    struct answer a = make_answer(&l);
    a.global_scale = expected->global_scale;
    memcpy(a.scale, expected->scale, l.scale_size);
    memcpy(a.zero_point, expected->zero_point, l.zero_point_size);
    qobs_quantizer_run_args run = run_of(m, &l, &a);
    if (!l.has_zero_point) {
        run.zero_point = NULL;
        run.zero_point_size = 0;
    }
    if (!g->dequantized && !has_products(g->kind) && below(2)) {
        run.squared_error = &a.squared_error;
        run.energy = &a.energy;
    }
    assert_ok(qobs_quantizer_run(q, &run, &error));
    compare(g, m, "static", &a, expected, &l);
    if (run.squared_error) {
        expect_same(g, m, "squared error", &a.squared_error, &expected->squared_error, sizeof a.squared_error);
        expect_same(g, m, "energy", &a.energy, &expected->energy, sizeof a.energy);
    }
    test_gaps(g, m, q, expected, &l);
    release_answer(&a);
    qobs_quantizer_destroy(q);
}

static int64_t random_columns(const struct kind *k, bool packed)
{
    static const int64_t most[] = {40, 300, 1200, 5000};
    const int64_t multiple = packed && k->multiple % 8 != 0 ? 8 * k->multiple : k->multiple;
    return multiple * (1 + below((most[below(4)] + multiple - 1) / multiple));
}

/* A zero point is outside of int32: codes of two calls have another one than those of one. */
static bool lacks_zero_point(const struct answer *a, const qobs_quantized_layout *l)
{
    const int32_t *zero_points = (const int32_t *)(const void *)a->zero_point;
    for (size_t i = 0; i < l->count; i++)
        if (zero_points[i] == INT32_MIN)
            return true;
    return false;
}

static void run_case(const struct kind *k, const qobs_executor *executor)
{
    static const char *const nonfinite[] = {"refuse", "ignore", "propagate"};
    static const qobs_dtype dtypes[] = {QOBS_BF16, QOBS_BF16, QOBS_F16, QOBS_F32, QOBS_F64};
    const qobs_dtype dtype = dtypes[below(has_products(k) ? 4 : 5)];
    struct given g = {.kind = k, .packed = k->packs && below(2), .executor = executor};
    g.dequantized = !g.packed && !has_products(k) && below(4) == 0;
    const int odd = below(8) == 0 ? 2 : (int)below(2);
    const bool weight = !strstr(k->settings, "base_name");
    const char *const preset = !weight || strstr(k->settings, "2025-09") || below(4) > 0 ? preset_of(k)
                               : below(2)                                                ? "minmax base_name=weight"
                                          : "static_minmax base_name=weight";
    put_text(&g, preset, nonfinite[below(3)]);
    assert_ok(qobs_config_parse(&g.config, g.text, NULL, &error));
    const int64_t columns = random_columns(k, g.packed);
    struct matrix m = make_matrix(dtype, 1 + below(columns > 1000 ? 12 : MAX_ROWS), columns, odd);
    qobs_quantizer *q = make_quantizer(&g, &m, true, NULL);
    const qobs_quantized_layout l = layout_of(q, m.rows);
    qobs_quantizer_destroy(q);
    struct answer expected = in_two_calls(&g, &m, &l);
    if (has_products(k) && l.has_zero_point && lacks_zero_point(&expected, &l))
        expected.status = QOBS_ERROR_NO_RESULT; /* test_vllm has its codes */
    else
        test_dynamic(&g, &m, &expected);
    if (expected.status == QOBS_OK)
        test_static(&g, &m, &expected);
    release_answer(&expected);
    qobs_config_destroy(g.config);
    free(m.memory);
}

static void test_cases(void **state)
{
    size_t threads = 4;
    const qobs_executor executor = {sizeof executor, threads, parallel_for, &threads};
    const int cases = repeats(300, 10000);
    for (size_t i = 0; select_isa(&i); i++)
        for (int n = 0; n < cases; n++)
            run_case(&kinds[n % KINDS], n % 16 == 0 ? &executor : NULL);
    assert_ok(qobs_isa_select(NULL, &error));
}

/* The range of one token has no dimensions, so that upstream computes the zero point in float, not in BF16: -127.3 is
 * -127, and -127.5 would be -128. */
static void test_one_token(void **state)
{
    uint16_t x[] = {0xc31e, 0x476a}; /* -158 and 59904 */
    const struct matrix m = {.dtype = QOBS_BF16, .rows = 1, .columns = 2, .stride = sizeof x, (unsigned char *)x, NULL};
    struct given g = {.kind = &kinds[KINDS - 2],
                      .text = "llmc.memoryless_minmax num_bits=8 base_name=input strategy=token dynamic=true "
                              "symmetric=false"};
    assert_non_null(strstr(g.text, g.kind->settings));
    assert_ok(qobs_config_parse(&g.config, g.text, NULL, &error));
    qobs_quantizer *q = make_quantizer(&g, &m, true, NULL);
    const qobs_quantized_layout l = layout_of(q, m.rows);
    struct answer expected = in_two_calls(&g, &m, &l);
    assert_int_equal((signed char)expected.zero_point[0], -127);
    test_dynamic(&g, &m, &expected);
    release_answer(&expected);
    qobs_quantizer_destroy(q);
    qobs_config_destroy(g.config);
}

/* Tokens of one element lie along a column, which a kernel call takes with a scale for each element. */
static void test_one_column(void **state)
{
    uint16_t x[] = {0x3f80, 0xc000, 0x4040}; /* 1, -2 and 3 */
    const struct matrix m = {.dtype = QOBS_BF16, .rows = 3, .columns = 1, .stride = sizeof *x, (unsigned char *)x, NULL};
    const struct kind k = {"vllm.QuantFP8", 1, 1, false};
    struct given g = {.kind = &k, .text = "vllm.QuantFP8"};
    assert_ok(qobs_config_parse(&g.config, g.text, NULL, &error));
    qobs_quantizer *q = make_quantizer(&g, &m, true, NULL);
    const qobs_quantized_layout l = layout_of(q, m.rows);
    struct answer expected = in_two_calls(&g, &m, &l);
    assert_int_equal(expected.status, QOBS_OK);
    assert_memory_equal(expected.codes, "\x7e\xfe\x7e", 3); /* 448, the largest number of e4m3 */
    test_dynamic(&g, &m, &expected);
    release_answer(&expected);
    qobs_quantizer_destroy(q);
    qobs_config_destroy(g.config);
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 16, RUNS = 20, WIDE = 512, TALL = 600 };

struct worker {
    const qobs_quantizer *q;
    const struct matrix *m;
    const qobs_quantized_layout *l;
    const struct answer *expected;
    bool same;
};

static void *work(void *argument)
{
    struct worker *w = argument;
    struct answer a = make_answer(w->l);
    qobs_error e;
    w->same = true;
    for (int i = 0; i < RUNS; i++) {
        const qobs_quantizer_run_args run = run_of(w->m, w->l, &a);
        w->same &= qobs_quantizer_run(w->q, &run, &e) == QOBS_OK &&
                   memcmp(a.codes, w->expected->codes, w->l->codes_size) == 0 &&
                   memcmp(a.scale, w->expected->scale, w->l->scale_size) == 0;
        memset(a.codes, GUARD, w->l->codes_size);
    }
    release_answer(&a);
    return NULL;
}

static void test_threads(void **state)
{
    for (size_t k = 0; k < KINDS; k += 4) {
        struct given g = {.kind = &kinds[k]};
        put_text(&g, preset_of(&kinds[k]), "refuse");
        assert_ok(qobs_config_parse(&g.config, g.text, NULL, &error));
        struct matrix m = make_matrix(QOBS_BF16, 40, kinds[k].multiple * 100, 0);
        qobs_quantizer *q = make_quantizer(&g, &m, true, NULL);
        const qobs_quantized_layout l = layout_of(q, m.rows);
        struct answer expected = in_two_calls(&g, &m, &l);
        assert_int_equal(expected.status, QOBS_OK);
        struct worker workers[THREADS];
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (struct worker){q, &m, &l, &expected, false};
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_true(workers[i].same);
        }
        qobs_quantizer_destroy(q);
        release_answer(&expected);
        qobs_config_destroy(g.config);
        free(m.memory);
    }
}

/* A matrix that is divided: the bytes of one thread, also of the sums. */
static void test_divided(void **state)
{
    size_t threads = 3;
    const qobs_executor executor = {sizeof executor, threads, parallel_for, &threads};
    const size_t before = loops;
    for (size_t k = 0; k < KINDS; k++) {
        struct given g = {.kind = &kinds[k], .packed = kinds[k].packs};
        put_text(&g, preset_of(&kinds[k]), "refuse");
        assert_ok(qobs_config_parse(&g.config, g.text, NULL, &error));
        const int64_t multiple = kinds[k].multiple * 8;
        struct matrix m =
            make_matrix(QOBS_F32, TALL, WIDE / multiple * multiple > 0 ? WIDE / multiple * multiple : multiple, 0);
        qobs_quantizer *q = make_quantizer(&g, &m, true, NULL);
        const qobs_quantized_layout l = layout_of(q, m.rows);
        qobs_quantizer_destroy(q);
        struct answer expected = in_two_calls(&g, &m, &l);
        g.executor = &executor;
        test_dynamic(&g, &m, &expected);
        test_static(&g, &m, &expected);
        if (expected.status == QOBS_OK) { /* one element that is refused, far down */
            const qobs_dtype dtype = m.dtype;
            qobs_put_element(m.data + (TALL - 2) * m.stride + 4, dtype, (double)NAN);
            release_answer(&expected);
            expected = in_two_calls(&g, &m, &l);
            assert_int_equal(expected.status, QOBS_ERROR_NONFINITE);
            assert_non_null(strstr(expected.message, "at [598, 1]"));
            test_dynamic(&g, &m, &expected);
        }
        release_answer(&expected);
        qobs_config_destroy(g.config);
        free(m.memory);
    }
    assert_true(loops > before);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static size_t allocations, allowed;

static void *allocate(void *context, size_t size)
{
    return ++allocations > allowed ? NULL : malloc(size);
}

static void release(void *context, void *memory, size_t size)
{
    (void)context, (void)size;
    free(memory);
}

static void test_memory(void **state)
{
    size_t threads = 3;
    const qobs_executor executor = {sizeof executor, threads, parallel_for, &threads};
    const qobs_allocator allocator = {sizeof allocator, allocate, release, NULL};
    const qobs_runtime runtime = {sizeof runtime, &allocator, &executor};
    static const char *const nonfinite[] = {"refuse", "ignore", "propagate"};
    for (size_t k = 0; k < KINDS; k++)
        for (int i = 0; i < 12; i++) {
            if (i >= 6 && k % 4 != 0 && !repeats(0, 1)) /* the tall ones of every fourth kind */
                break;
            struct given g = {.kind = &kinds[k], .packed = kinds[k].packs && i % 2};
            put_text(&g, preset_of(&kinds[k]), nonfinite[i % 3]);
            assert_ok(qobs_config_parse(&g.config, g.text, NULL, &error));
            struct matrix m = make_matrix(QOBS_BF16, i < 6 ? 17 : TALL, kinds[k].multiple * 64, 2 * (i / 3 % 2));
            const qobs_quantizer_args args = {.struct_size = sizeof args,
                                              .config = g.config,
                                              .dtype = m.dtype,
                                              .columns = m.columns,
                                              .dynamic = 1,
                                              .packed = g.packed,
                                              .runtime = &runtime};
            qobs_quantizer *q = NULL;
            allocations = allowed = 0;
            assert_refused(qobs_quantizer_create(&q, &args, &error), QOBS_ERROR_OUT_OF_MEMORY, "quantizer");
            allocations = 0;
            allowed = 1;
            assert_ok(qobs_quantizer_create(&q, &args, &error));
            const qobs_quantized_layout l = layout_of(q, m.rows);
            struct answer a = make_answer(&l);
            a.global_scale = 1;
            const qobs_quantizer_run_args run = run_of(&m, &l, &a);
            const int status = qobs_quantizer_run(q, &run, &error);
            assert_true(status == QOBS_OK || (status == QOBS_ERROR_NONFINITE && i % 3 == 0));
            assert_int_equal(allocations, 1);
            qobs_quantizer_destroy(q);
            release_answer(&a);
            qobs_config_destroy(g.config);
            free(m.memory);
        }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static int create(const char *text, qobs_quantizer_args args)
{
    qobs_config *config = NULL;
    qobs_quantizer *q = NULL;
    assert_ok(qobs_config_parse(&config, text, NULL, &error));
    args.struct_size = sizeof args;
    args.config = config;
    const int status = qobs_quantizer_create(&q, &args, &error);
    qobs_quantizer_destroy(q);
    qobs_config_destroy(config);
    return status;
}

#define assert_not_created(text, status, words, ...)                                                                   \
    do {                                                                                                               \
        qobs_quantizer_args a = {.dtype = QOBS_BF16, .columns = 64};                                                   \
        __VA_ARGS__;                                                                                                   \
        assert_refused(create(text, a), status, words);                                                                \
    } while (0)

static void test_refusals(void **state)
{
    const char *const int8 = "llmc.memoryless_minmax num_bits=8 strategy=channel";
    const char *const int4 = "llmc.memoryless_minmax num_bits=4 group_size=9 ragged=true";
    assert_not_created(int8, QOBS_ERROR_INVALID_ARGUMENT, "columns|is 0", a.columns = 0);
    assert_not_created(int8, QOBS_ERROR_INVALID_ARGUMENT, "dynamic|is 2", a.dynamic = 2);
    assert_not_created(int8, QOBS_ERROR_INVALID_ARGUMENT, "packed|8 bits", a.packed = 1);
    assert_not_created(int8, QOBS_ERROR_INVALID_ARGUMENT, "packed|dequantized", a.packed = 1; a.dequantized = 1);
    assert_not_created(int8, QOBS_ERROR_INVALID_ARGUMENT, "dtype|I8", a.dtype = QOBS_I8);
    assert_not_created(int8, QOBS_ERROR_INVALID_ARGUMENT, "scale_dtype|F64", a.scale_dtype = QOBS_F64);
    assert_not_created(int8, QOBS_ERROR_INVALID_ARGUMENT, "zero_point_dtype|99", a.zero_point_dtype = (qobs_dtype)99);
    assert_not_created(int8, QOBS_ERROR_INVALID_ARGUMENT, "scale_dtype|dynamic", a.scale_dtype = QOBS_F32;
                       a.dynamic = 1);
    assert_not_created(int4, QOBS_ERROR_INVALID_ARGUMENT, "packed|9 columns", a.packed = 1);
    assert_not_created("llmc.memoryless_minmax num_bits=4 group_size=48", QOBS_ERROR_INVALID_ARGUMENT, "group_size|48",
                       (void)a);
    assert_not_created("llmc.memoryless_mse strategy=channel norm=2", QOBS_ERROR_UNSUPPORTED, "dynamic|memoryless_mse",
                       a.dynamic = 1);
    assert_not_created("llmc.mse strategy=channel norm=2 base_name=weight", QOBS_ERROR_UNSUPPORTED, "dynamic|llmc.mse",
                       a.dynamic = 1);
    assert_not_created("torch.MinMaxObserver", QOBS_ERROR_INVALID_ARGUMENT, "config|torch.MinMaxObserver", (void)a);
    assert_not_created("quark.PerChannelMinMaxObserver ch_axis=0", QOBS_ERROR_UNSUPPORTED, "config|rows",
                       a.dequantized = 1;
                       a.format = qobs_format_find("int8"));
}

static void test_fp8_zero_point(const struct matrix *m)
{
    struct given g = {.kind = &kinds[0], .text = "vllm.QuantFP8"};
    int32_t zero_points[2] = {0};
    assert_ok(qobs_config_parse(&g.config, g.text, NULL, &error));
    qobs_quantizer *q = make_quantizer(&g, m, false, NULL);
    const qobs_quantized_layout l = layout_of(q, m->rows);
    struct answer a = make_answer(&l);
    qobs_quantizer_run_args run = run_of(m, &l, &a);
    run.zero_point = zero_points;
    run.zero_point_size = sizeof zero_points;
    assert_refused(qobs_quantizer_run(q, &run, &error), QOBS_ERROR_INVALID_ARGUMENT, "zero_point|NULL");
    release_answer(&a);
    qobs_quantizer_destroy(q);
    qobs_config_destroy(g.config);
}

/* Codes of a runtime, whose operators take no F64 and have no other numbers. */
static void test_products_refused(void **state)
{
    const char *const int8 = "vllm.scaled_int8_quant";
    assert_not_created(int8, QOBS_ERROR_INVALID_ARGUMENT, "dtype|F64|BF16", a.dtype = QOBS_F64);
    assert_not_created(int8, QOBS_ERROR_INVALID_ARGUMENT, "config|scaled_int8_quant|codes", a.dequantized = 1);
    assert_not_created(int8, QOBS_ERROR_INVALID_ARGUMENT, "format|fp8_e4m3|scaled_int8_quant",
                       a.format = qobs_format_find("fp8_e4m3"));
    assert_not_created(int8, QOBS_ERROR_INVALID_ARGUMENT, "packed|8 bits", a.packed = 1);
    assert_not_created("vllm.scaled_int8_quant group_shape=PER_TENSOR symmetric=false", QOBS_ERROR_INVALID_ARGUMENT,
                       "dynamic|PER_TENSOR", a.dynamic = 1);
    assert_not_created("vllm.QuantFP8 group_size=16", QOBS_ERROR_INVALID_ARGUMENT, "dtype|F64|BF16", a.dtype = QOBS_F64);

    struct given g = {.kind = &kinds[0], .text = "vllm.scaled_int8_quant"};
    assert_ok(qobs_config_parse(&g.config, g.text, NULL, &error));
    struct matrix m = make_matrix(QOBS_BF16, 2, 8, 0);
    qobs_quantizer *q = make_quantizer(&g, &m, true, NULL);
    const qobs_quantized_layout l = layout_of(q, m.rows);
    struct answer a = make_answer(&l);
    qobs_quantizer_run_args run = run_of(&m, &l, &a);
    run.squared_error = &a.squared_error;
    assert_refused(qobs_quantizer_run(q, &run, &error), QOBS_ERROR_INVALID_ARGUMENT, "squared_error");
    run.squared_error = NULL;
    test_fp8_zero_point(&m);
    const uint16_t infinity = 0x7f80;
    memcpy(m.data + m.stride, &infinity, sizeof infinity);
    assert_refused(qobs_quantizer_run(q, &run, &error), QOBS_ERROR_NONFINITE, "[1, 0]");
    release_answer(&a);
    qobs_quantizer_destroy(q);
    qobs_config_destroy(g.config);
    free(m.memory);
}

static void test_runs_refused(void **state)
{
    struct given g = {.kind = &kinds[1], .text = "llmc.memoryless_minmax num_bits=8 strategy=channel symmetric=false"};
    assert_ok(qobs_config_parse(&g.config, g.text, NULL, &error));
    struct matrix m = make_matrix(QOBS_F32, 3, 16, 0);
    qobs_quantizer *q = make_quantizer(&g, &m, true, NULL);
    const qobs_quantized_layout l = layout_of(q, m.rows);
    struct answer a = make_answer(&l);
    const qobs_quantizer_run_args good = run_of(&m, &l, &a);
    const float global_scale = 1;
#define assert_run_refused(words, ...)                                                                                 \
    do {                                                                                                               \
        qobs_quantizer_run_args run = good;                                                                            \
        __VA_ARGS__;                                                                                                   \
        assert_refused(qobs_quantizer_run(q, &run, &error), QOBS_ERROR_INVALID_ARGUMENT, words);                       \
    } while (0)
    assert_run_refused("rows|-1", run.rows = -1);
    assert_run_refused("rows", run.rows = INT64_MAX);
    assert_run_refused("value|NULL", run.value = NULL);
    assert_run_refused("value_stride|63", run.value_stride = 63);
    assert_run_refused("value_stride|-64", run.value_stride = -64);
    assert_run_refused("value_stride|2^61", run.value_stride = INT64_MAX);
    assert_run_refused("codes_stride|15", run.codes_stride = 15);
    assert_run_refused("codes|47", run.codes_size = 47);
    assert_run_refused("codes|64 bytes|68", run.codes_stride = 26; run.codes_size = 64);
    assert_run_refused("scale|NULL", run.scale = NULL);
    assert_run_refused("zero_point", run.zero_point = NULL; run.zero_point_size = 0);
    assert_run_refused("global_scale|set", run.global_scale = &global_scale);
    assert_run_refused("energy|codes is NULL", run.codes = NULL; run.energy = &a.energy);
    qobs_quantizer_run_args none = {.struct_size = sizeof none};
    assert_ok(qobs_quantizer_run(q, &none, &error)); /* no rows */
    qobs_quantizer_destroy(q);
    release_answer(&a);
    qobs_config_destroy(g.config);
    free(m.memory);
}

static void test_global_scales_refused(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, -1}, good = 0x1p-149f;
    static const float values[16] = {1, -2, 3};
    qobs_config *config = NULL;
    qobs_quantizer *q = NULL;
    uint8_t codes[16];
    float scale[1];
    const char *text = "llmc.memoryless_minmax num_bits=4 type=float strategy=tensor_group group_size=16 "
                       "scale_dtype=float8_e4m3fn";
    assert_ok(qobs_config_parse(&config, text, NULL, &error));
    const qobs_quantizer_args args = {
        .struct_size = sizeof args, .config = config, .dtype = QOBS_F32, .columns = 16, .dynamic = 1};
    assert_ok(qobs_quantizer_create(&q, &args, &error));
    qobs_quantizer_run_args run = {.struct_size = sizeof run,
                                   .rows = 1,
                                   .value = values,
                                   .codes = codes,
                                   .codes_size = sizeof codes,
                                   .scale = scale,
                                   .scale_size = sizeof scale};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        run.global_scale = &bad[i];
        assert_refused(qobs_quantizer_run(q, &run, &error), QOBS_ERROR_INVALID_ARGUMENT,
                       "global_scale: is |finite numbers above 0");
    }
    run.global_scale = &good;
    assert_ok(qobs_quantizer_run(q, &run, &error));
    qobs_quantizer_destroy(q);
    qobs_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_one_token),
        cmocka_unit_test(test_one_column),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_divided),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_products_refused),
        cmocka_unit_test(test_runs_refused),
        cmocka_unit_test(test_global_scales_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
