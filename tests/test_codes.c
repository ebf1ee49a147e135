/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_quantize with its sums, qobs_dequantize and qobs_measure_error: every granularity, rows of larger tensors,
 * threads, wrong arguments. */
#include <math.h>

#include "codes.h"
#include "qobs/stateless.h"
#include "threads.h"
#include "unit.h"

static size_t threads = 3;
static const qobs_executor executor = {
    .struct_size = sizeof executor, .threads = 3, .parallel_for = parallel_for, .context = &threads};
static const qobs_runtime with_threads = {.struct_size = sizeof with_threads, .executor = &executor};

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

struct granularity {
    const char *name, *settings;
    int64_t rows, columns;
    int64_t height, width; /* of the blocks that share a qparam; 0: all */
    struct code_way way;
    bool zero_points, global_scale;
};

static const struct granularity granularities[] = {
    {"int4 group", "num_bits=4 group_size=128", 24, 512, 1, 128, {QOBS_CODE_INTEGER, 4, false}, false, false},
    {"int4 group asymmetric",
     "num_bits=4 group_size=32 symmetric=false",
     9,
     96,
     1,
     32,
     {QOBS_CODE_INTEGER, 4, 0},
     true,
     false},
    {"int3 channel", "num_bits=3 strategy=channel", 7, 33, 1, 0, {QOBS_CODE_INTEGER, 3, false}, false, false},
    {"int8 tensor", "num_bits=8 strategy=tensor", 600, 701, 0, 0, {QOBS_CODE_INTEGER, 8, false}, false, false},
    {"fp8 channel", "type=float num_bits=8 strategy=channel", 513, 1024, 1, 0, {QOBS_CODE_E4M3, 8, 0}, false, false},
    {"fp8 block",
     "type=float num_bits=8 strategy=block block_structure=[4,8]",
     11,
     21,
     4,
     8,
     {QOBS_CODE_E4M3, 8, false},
     false,
     false},
    {"nvfp4",
     "type=float num_bits=4 strategy=tensor_group group_size=16",
     40,
     256,
     1,
     16,
     {QOBS_CODE_E2M1, 4, true},
     false,
     true},
    {"fp6 group", "type=float num_bits=6 group_size=32", 17, 96, 1, 32, {QOBS_CODE_E2M3, 6, false}, false, false},
    {"fp4 group", "type=float num_bits=4 group_size=32", 5, 64, 1, 32, {QOBS_CODE_E2M1, 4, false}, false, false},
};

static int64_t qparams_along(int64_t extent, int64_t size) { return size == 0 ? 1 : (extent + size - 1) / size; }

/* A tensor in a larger one, its qparams, and what must come out. */
struct sample {
    const struct granularity *g;
    qobs_dtype dtype;
    unsigned char *memory, *codes, *numbers;
    void *scale;
    int8_t *zero_point;
    int64_t shape[2], strides[2], qparams;
    float global_scale;
    double squared_error, energy; /* up to rounding */
    double first[2], packed[2];   /* the sums of the first calls; 0 before them */
};

static double global_of(const struct sample *s, double scale)
{
    return s->g->global_scale ? round_dtype(QOBS_F32, scale / (double)s->global_scale) : scale;
}

static void make_sample(struct sample *s, const struct granularity *g, qobs_dtype dtype)
{
    const size_t element = qobs_dtype_size(dtype), n = (size_t)(g->rows * g->columns);
    const int64_t across = qparams_along(g->columns, g->width);
    *s = (struct sample){.g = g, .dtype = dtype, .shape = {g->rows, g->columns}, .global_scale = 11.5f};
    s->qparams = qparams_along(g->rows, g->height) * across;
    s->strides[1] = (int64_t)element;
    s->strides[0] = (g->columns + 5) * (int64_t)element;
    s->memory = calloc((size_t)g->rows, (size_t)s->strides[0]);
    s->codes = malloc(n);
    s->numbers = malloc(n * element);
    s->scale = malloc((size_t)s->qparams * element);
    s->zero_point = malloc((size_t)s->qparams);
    assert_true(s->memory && s->codes && s->numbers && s->scale && s->zero_point);
    struct code_way way = g->way;
    way.in_float = way.in_float || dtype == QOBS_F32;
    for (int64_t q = 0; q < s->qparams; q++) {
        put(dtype, s->scale, q, round_dtype(dtype, exp2(uniform(-7, 0))));
        s->zero_point[q] = (int8_t)(random_bits() % 8);
    }
    for (int64_t i = 0; i < g->rows; i++)
        for (int64_t j = 0; j < g->columns; j++) {
            const int64_t q = (g->height ? i / g->height : 0) * across + (g->width ? j / g->width : 0);
            const double scale = global_of(s, get(dtype, s->scale, q));
            const double x = round_dtype(dtype, uniform(-1.2, 1.2) * most_of_codes(&way) * scale);
            const double zero_point = s->zero_point[q], *z = g->zero_points ? &zero_point : NULL;
            const unsigned char code = slow_code(&way, dtype, x, scale, z);
            put(dtype, s->memory + i * s->strides[0], j, x);
            s->codes[i * g->columns + j] = code;
            const double number = slow_dequantize(&way, dtype, code, scale, z);
            put(dtype, s->numbers, i * g->columns + j, number);
            s->squared_error += (x - number) * (x - number);
            s->energy += x * x;
        }
}

static void free_sample(struct sample *s)
{
    free(s->memory);
    free(s->codes);
    free(s->numbers);
    free(s->scale);
    free(s->zero_point);
}

/* Numbers as bits, but every zero +0: fake-quantize keeps the sign of numbers that an integer has not. */
static void compare_numbers(const struct sample *s, const unsigned char *a, const unsigned char *b)
{
    for (int64_t i = 0; i < s->g->rows * s->g->columns; i++)
        if (get(s->dtype, a, i) != get(s->dtype, b, i))
            fail_msg("%s: element %lld is %a, expected %a", s->g->name, (long long)i, get(s->dtype, a, i),
                     get(s->dtype, b, i));
}

/* Every call of a sample has the same bits. */
static void check_sums(const struct sample *s, double squared_error, double energy, double *first)
{
    if (fabs(squared_error - s->squared_error) > 1e-4 * s->squared_error || fabs(energy - s->energy) > 1e-4 * s->energy)
        fail_msg("%s %s: sums %g and %g, expected %g and %g", s->g->name, qobs_dtype_name(s->dtype), squared_error,
                 energy, s->squared_error, s->energy);
    if (first[1] == 0) {
        first[0] = squared_error;
        first[1] = energy;
    }
    assert_true(squared_error == first[0] && energy == first[1]);
}

/* Packed in the same pass, with and without sums, is the same as packed afterwards. */
static void check_packed(struct sample *s, const qobs_quantize_args *args)
{
    const size_t n = (size_t)(s->shape[0] * s->shape[1]);
    unsigned char *packed = malloc(n / 2 + 1), *expected = malloc(n / 2);
    double squared_error = -1, energy = -1;
    qobs_quantize_args to = *args;
    const qobs_pack_args pack = {.struct_size = sizeof pack,
                                 .bits = 4,
                                 .dim = 1,
                                 .rows = s->shape[0],
                                 .columns = s->shape[1],
                                 .word_bits = 8,
                                 .offset = s->g->way.kind == QOBS_CODE_INTEGER ? 8 : 0,
                                 .codes = s->codes,
                                 .codes_size = n,
                                 .packed = expected,
                                 .packed_size = n / 2};
    qobs_error error = {0};
    assert_non_null(packed);
    assert_non_null(expected);
    assert_int_equal(qobs_pack(&pack, &error), QOBS_OK);
    to.packed = 1;
    to.codes = packed;
    to.codes_size = n / 2;
    for (int with_sums = 0; with_sums < 2; with_sums++) {
        memset(packed, 0x5a, n / 2 + 1);
        to.squared_error = with_sums ? &squared_error : NULL;
        to.energy = with_sums ? &energy : NULL;
        if (qobs_quantize(&to, &error) != QOBS_OK)
            fail_msg("%s: %s", s->g->name, error.message);
        assert_memory_equal(packed, expected, n / 2);
        assert_int_equal(packed[n / 2], 0x5a);
    }
    check_sums(s, squared_error, energy, s->packed);
    free(packed);
    free(expected);
}

static void check_sample(struct sample *s, const qobs_config *config, const qobs_runtime *runtime)
{
    const size_t n = (size_t)(s->shape[0] * s->shape[1]), size = n * qobs_dtype_size(s->dtype);
    unsigned char *codes = malloc(n), *numbers = malloc(size);
    const float *global = s->g->global_scale ? &s->global_scale : NULL;
    const qobs_tensor value = {sizeof value, s->memory, s->dtype, 2, s->shape, s->strides};
    const qobs_tensor scale = {sizeof scale, s->scale, s->dtype, 1, &s->qparams, NULL};
    const qobs_tensor zeros = {sizeof zeros, s->zero_point, QOBS_I8, 1, &s->qparams, NULL};
    const qobs_tensor *zero_point = s->g->zero_points ? &zeros : NULL;
    const qobs_tensor of_codes = {sizeof of_codes, codes, QOBS_I8, 2, s->shape, NULL};
    double squared_error = -1, energy = -1, energy_alone = -1;
    const qobs_quantize_args without = {sizeof without, config, NULL, &value,  NULL, &scale, zero_point,
                                        global,         codes,  n,    runtime, NULL, NULL,   0};
    qobs_quantize_args to = without;
    const qobs_dequantize_args from = {sizeof from, config,  NULL, &of_codes, NULL,     &scale, zero_point,
                                       global,      numbers, NULL, size,      s->dtype, runtime};
    const qobs_fake_quantize_args both = {sizeof both, config,  NULL, &value, NULL,    &scale, zero_point,
                                          global,      numbers, NULL, size,   runtime, NULL};
    qobs_error error = {0};
    assert_non_null(codes);
    assert_non_null(numbers);
    for (int i = 0; i < 3; i++) { /* the last call's codes are compared */
        to.squared_error = i == 0 ? &squared_error : NULL;
        to.energy = i == 0 ? &energy : i == 1 ? &energy_alone : NULL;
        if (qobs_quantize(&to, &error) != QOBS_OK)
            fail_msg("%s: %s", s->g->name, error.message);
        if (i == 0)
            for (size_t k = 0; k < n; k++)
                assert_int_equal(codes[k], s->codes[k]);
    }
    check_sums(s, squared_error, energy, s->first);
    if (s->g->way.bits == 4 && s->shape[1] % 8 == 0)
        check_packed(s, &to);
    assert_true(energy_alone == energy);
    for (size_t i = 0; i < n; i++)
        if (codes[i] != s->codes[i])
            fail_msg("%s %s %s: code %zu is %#x, expected %#x", qobs_isa_active(), s->g->name,
                     qobs_dtype_name(s->dtype), i, codes[i], s->codes[i]);
    if (qobs_dequantize(&from, &error) != QOBS_OK)
        fail_msg("%s: %s", s->g->name, error.message);
    assert_memory_equal(numbers, s->numbers, size);
    assert_int_equal(qobs_fake_quantize(&both, &error), QOBS_OK);
    compare_numbers(s, numbers, s->numbers);
    free(codes);
    free(numbers);
}

static void test_tensors(void **state)
{
    const struct granularity *g = *state;
    char text[200];
    qobs_config *config;
    qobs_error error;
    snprintf(text, sizeof text, "llmc.memoryless_minmax %s", g->settings);
    if (qobs_config_parse(&config, text, NULL, &error) != QOBS_OK)
        fail_msg("%s", error.message);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        struct sample s;
        if (dtypes[d] == QOBS_F64 && g->global_scale)
            continue; /* a scale in F64 divided by one in F32 is none of compressed-tensors' arithmetics */
        make_sample(&s, g, dtypes[d]);
        for (size_t i = 0; select_isa(&i); i++)
            check_sample(&s, config, NULL);
        check_sample(&s, config, &with_threads);
        free_sample(&s);
    }
    qobs_isa_select(NULL, NULL);
    qobs_config_destroy(config);
}

/* ---- Wrong arguments --------------------------------------------------------------------------------------------- */

#define REFUSED(call, words)                                                                                           \
    do {                                                                                                               \
        qobs_error refusal = {0};                                                                                      \
        assert_int_equal((call), QOBS_ERROR_INVALID_ARGUMENT);                                                         \
        if (!strstr(refusal.message, words))                                                                           \
            fail_msg("'%s' is not in: %s", words, refusal.message);                                                    \
    } while (0)

static void test_refusals(void **state)
{
    qobs_config *llmc, *wide, *torch;
    float x[6] = {0}, scales[2] = {1, 1}, out[6] = {7};
    unsigned char codes[6] = {7};
    int16_t pairs[6] = {0};
    const int64_t shape[2] = {2, 3}, two = 2, gap[2] = {0, 4};
    const qobs_tensor value = {sizeof value, x, QOBS_F32, 2, shape, NULL};
    const qobs_tensor scale = {sizeof scale, scales, QOBS_F32, 1, &two, NULL};
    const qobs_tensor bytes = {sizeof bytes, codes, QOBS_I8, 2, shape, NULL};
    const qobs_tensor words = {sizeof words, pairs, QOBS_I16, 2, shape, NULL};
    assert_int_equal(qobs_config_parse(&llmc, "llmc.memoryless_minmax strategy=channel", NULL, NULL), QOBS_OK);
    assert_int_equal(qobs_config_parse(&wide, "llmc.memoryless_minmax strategy=channel num_bits=16", NULL, NULL), 0);
    assert_int_equal(qobs_config_create(&torch, "torch.MinMaxObserver", NULL, NULL), QOBS_OK);
    const qobs_quantize_args to = {
        .struct_size = sizeof to, .config = llmc, .value = &value, .scale = &scale, .codes = codes, .codes_size = 6};
    const qobs_dequantize_args from = {.struct_size = sizeof from,
                                       .config = llmc,
                                       .codes = &bytes,
                                       .scale = &scale,
                                       .out = out,
                                       .out_size = sizeof out,
                                       .dtype = QOBS_F32};
    qobs_quantize_args q = to;
    q.codes_size = 5;
    REFUSED(qobs_quantize(&q, &refusal), "codes: has 5 bytes, value has 6 elements");
    q.packed = 1;
    REFUSED(qobs_quantize(&q, &refusal), "packed: is 1, but codes have 8 bits; packed are codes of 4");
    q.format = qobs_format_find("fp4");
    REFUSED(qobs_quantize(&q, &refusal), "packed: is 1, but the last dimension of value is 3, not a multiple of 8");
    q.packed = 2;
    REFUSED(qobs_quantize(&q, &refusal), "packed: is 2, allowed are 0 and 1");
    q = to;
    q.config = torch;
    REFUSED(qobs_quantize(&q, &refusal), "config: is torch.MinMaxObserver, codes are those of llmc and qobs presets");
    q.config = wide;
    REFUSED(qobs_quantize(&q, &refusal), "config: num_bits is 16, codes have 2 to 8");
    q = to;
    q.format = qobs_format_find("fp8_e5m2");
    REFUSED(qobs_quantize(&q, &refusal), "format: is ");
    double sums[2] = {5, 6};
    q.squared_error = &sums[0];
    q.energy = &sums[1];
    REFUSED(qobs_quantize(&q, &refusal), "format: is ");
    assert_true(codes[0] == 7 && sums[0] == 5 && sums[1] == 6);
    qobs_dequantize_args d = from;
    d.codes = &words;
    REFUSED(qobs_dequantize(&d, &refusal), "codes: dtype is I16, allowed are those of one byte");
    d = from;
    d.dtype = QOBS_I8;
    REFUSED(qobs_dequantize(&d, &refusal), "dtype: is I8, allowed are F32, BF16, F16 and F64");
    d = from;
    d.out_size = 23;
    REFUSED(qobs_dequantize(&d, &refusal), "out: has 23 bytes, its elements span 24");
    d = from;
    d.out_strides = gap;
    REFUSED(qobs_dequantize(&d, &refusal), "out_strides: [0] is 0, allowed are numbers above 0");
    d.out_strides = (const int64_t[]){-12, 4}; /* would write before out */
    REFUSED(qobs_dequantize(&d, &refusal), "out_strides: [0] is -12, allowed are numbers above 0");
    d.out_strides = (const int64_t[]){4, 4};
    REFUSED(qobs_dequantize(&d, &refusal), "out_strides: [1] is 4, elements would share memory; at least 8 is needed");
    d.out_strides = (const int64_t[]){8, 4};
    REFUSED(qobs_dequantize(&d, &refusal), "out_strides: [0] is 8, elements would share memory; at least 12 is needed");
    d = from;
    d.config = torch;
    REFUSED(qobs_dequantize(&d, &refusal), "config: is torch.MinMaxObserver");
    assert_true(out[0] == 7);
    qobs_config_destroy(llmc);
    qobs_config_destroy(wide);
    qobs_config_destroy(torch);
}

/* Small integers have exact sums in any order: every dtype, contiguous, transposed, broadcast and in other steps. */
static void test_measure_error(void **state)
{
    enum { ROWS = 37, COLUMNS = 53, STEP = 2 };
    static const qobs_dtype dtypes[] = {QOBS_F32, QOBS_BF16, QOBS_F16, QOBS_F64};
    static double memory[2][ROWS * COLUMNS * STEP];
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int layout = 0; layout < 4; layout++) {
            const int64_t size = (int64_t)qobs_dtype_size(dtypes[d]), shape[] = {ROWS, 1, COLUMNS};
            const int64_t strides[][3] = {{COLUMNS * size, 0, size},
                                          {size, 7, ROWS * size},
                                          {0, 0, size},
                                          {STEP * COLUMNS * size, 0, STEP * size}};
            double error_sum = 0, energy_sum = 0, got_error = -1, got_energy = -1;
            qobs_error error;
            for (size_t i = 0; i < ROWS * COLUMNS * STEP; i++) {
                put(dtypes[d], memory[0], i, (double)(random_bits() % 9) - 4);
                put(dtypes[d], memory[1], i, (double)(random_bits() % 9) - 4);
            }
            for (int64_t i = 0; i < ROWS; i++)
                for (int64_t j = 0; j < COLUMNS; j++) {
                    const int64_t at = (i * strides[layout][0] + j * strides[layout][2]) / size;
                    const double a = get(dtypes[d], memory[0], (size_t)at);
                    const double b = get(dtypes[d], memory[1], (size_t)(i * COLUMNS + j));
                    error_sum += (a - b) * (a - b);
                    energy_sum += a * a;
                }
            const qobs_tensor value = {sizeof value, memory[0], dtypes[d], 3, shape, strides[layout]};
            const qobs_tensor other = {sizeof other, memory[1], dtypes[d], 3, shape, NULL};
            assert_int_equal(qobs_measure_error(&value, &other, &got_error, &got_energy, &error), QOBS_OK);
            assert_true(got_error == error_sum && got_energy == energy_sum);
        }
    const int64_t shape[] = {2, 3}, shorter[] = {2, 2}, none[] = {2, 0};
    const qobs_tensor value = {sizeof value, memory[0], QOBS_F32, 2, shape, NULL};
    const qobs_tensor half = {sizeof half, memory[0], QOBS_F16, 2, shape, NULL};
    const qobs_tensor smaller = {sizeof smaller, memory[0], QOBS_F32, 2, shorter, NULL};
    const qobs_tensor flat = {sizeof flat, memory[0], QOBS_F32, 1, shape, NULL};
    const qobs_tensor codes = {sizeof codes, memory[0], QOBS_I8, 2, shape, NULL};
    const qobs_tensor empty = {sizeof empty, memory[0], QOBS_F32, 2, none, NULL};
    double sums[2] = {7, 7};
    qobs_error refusal;
    REFUSED(qobs_measure_error(&value, &half, &sums[0], &sums[1], &refusal), "other: dtype is F16, value has F32");
    REFUSED(qobs_measure_error(&value, &smaller, &sums[0], &sums[1], &refusal), "other: shape[1] is 2, value has 3");
    REFUSED(qobs_measure_error(&value, &flat, &sums[0], &sums[1], &refusal), "other: ndim is 1, value has 2");
    REFUSED(qobs_measure_error(&codes, &codes, &sums[0], &sums[1], &refusal), "value: dtype is I8, allowed are F32");
    assert_true(sums[0] == 7 && sums[1] == 7);
    assert_int_equal(qobs_measure_error(&empty, &empty, &sums[0], &sums[1], &refusal), QOBS_OK);
    assert_true(sums[0] == 0 && sums[1] == 0);
}

int main(void)
{
    enum { GRANULARITIES = sizeof granularities / sizeof *granularities };
    const struct CMUnitTest others[] = {cmocka_unit_test(test_refusals), cmocka_unit_test(test_measure_error)};
    static struct CMUnitTest tests[GRANULARITIES + sizeof others / sizeof *others];
    for (size_t i = 0; i < GRANULARITIES; i++)
        tests[i] = (struct CMUnitTest){.name = granularities[i].name,
                                       .test_func = test_tensors,
                                       .initial_state = (void *)(uintptr_t)&granularities[i]};
    memcpy(tests + GRANULARITIES, others, sizeof others);
    return _cmocka_run_group_tests("codes", tests, sizeof tests / sizeof *tests, NULL, NULL);
}
