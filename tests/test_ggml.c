/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ggml.q8_0 and ggml.q8_K: hashes of the blocks of ggml-cpu for x86-64 and Arm64 (tests/golden/ggml_activations.txt,
 * which tests/upstream_ggml.py records) on every usable instruction set, dtypes, strides, threads, scales, and what is
 * refused. */
#include "gguf_rows.h"
#include "kernels/dispatch.h"
#include "number/q8_block.h"
#include "qobs/quantizer.h"
#include "qobs/stateless.h"
#include "threads.h"
#include "unit.h"

enum { ROWS = 3, COLUMNS = 2304, ELEMENTS = ROWS * COLUMNS, MOST_BYTES = 2 * ELEMENTS };

static float value[ELEMENTS];
static unsigned char blocks[MOST_BYTES], others[MOST_BYTES];

static bool is_k(const char *preset) { return strcmp(preset, "ggml.q8_K") == 0; }

static size_t bytes_of_row(const char *preset)
{
    return is_k(preset) ? COLUMNS / Q8_K_ELEMENTS * Q8_K_BYTES : COLUMNS / Q8_0_ELEMENTS * Q8_0_BYTES;
}

static qobs_config *config_of(const char *preset, const char *build)
{
    qobs_config *config;
    assert_int_equal(qobs_config_create(&config, preset, NULL, NULL), QOBS_OK);
    assert_int_equal(qobs_config_set(config, "build", build, NULL), QOBS_OK);
    return config;
}

static qobs_quantizer *quantizer_of(const char *preset, const char *build, qobs_dtype dtype, int64_t columns,
                                    const qobs_runtime *runtime)
{
    qobs_config *config = config_of(preset, build);
    const qobs_quantizer_args args = {.struct_size = sizeof args,
                                      .config = config,
                                      .dtype = dtype,
                                      .columns = columns,
                                      .dynamic = 1,
                                      .runtime = runtime};
    qobs_quantizer *q;
    qobs_error error;
    if (qobs_quantizer_create(&q, &args, &error) != QOBS_OK)
        fail_msg("%s", error.message);
    qobs_config_destroy(config);
    return q;
}

static void run(const qobs_quantizer *q, int64_t rows, const void *x, void *out, size_t size)
{
    qobs_error error;
    const qobs_quantizer_run_args args = {
        .struct_size = sizeof args, .rows = rows, .value = x, .codes = out, .codes_size = size};
    if (qobs_quantizer_run(q, &args, &error) != QOBS_OK)
        fail_msg("%s", error.message);
}

static void quantize(const char *preset, const char *build, qobs_dtype dtype, const void *x, unsigned char *out)
{
    qobs_quantizer *q = quantizer_of(preset, build, dtype, COLUMNS, NULL);
    memset(out, 0x5a, MOST_BYTES);
    run(q, ROWS, x, out, ROWS * bytes_of_row(preset));
    qobs_quantizer_destroy(q);
}

static void swap_bytes(unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        const unsigned char byte = p[i];
        p[i] = p[n - 1 - i];
        p[n - 1 - i] = byte;
    }
}

/* Scales and sums are numbers of the machine; those of the hashes are little-endian. */
static uint64_t hash_of(const char *preset, unsigned char *out)
{
    const uint16_t one = 1;
    const size_t size = ROWS * bytes_of_row(preset), each = is_k(preset) ? Q8_K_BYTES : Q8_0_BYTES;
    unsigned char first;
    memcpy(&first, &one, 1);
    for (unsigned char *p = out; first == 0 && p < out + size; p += each) {
        swap_bytes(p, is_k(preset) ? 4 : 2);
        for (size_t i = Q8_K_SUMS; is_k(preset) && i < Q8_K_BYTES; i += 2)
            swap_bytes(p + i, 2);
    }
    return gguf_hash(out, size);
}

static void check_case(const char *preset, const char *build, int kind, uint64_t expected)
{
    gguf_fill(value, ELEMENTS, kind);
    for (size_t i = 0; select_isa(&i); i++) {
        quantize(preset, build, QOBS_F32, value, blocks);
        if (hash_of(preset, blocks) != expected)
            fail_msg("%s build=%s, rows %d, %s: other bytes than ggml's", preset, build, kind, qobs_isa_name(i));
    }
    qobs_isa_select(NULL, NULL);
}

static void test_golden(void **state)
{
    char preset[16], build[16];
    int cases = 0;
    unsigned long long expected;
    FILE *const file = fopen(QOBS_GOLDEN_DIR "/ggml_activations.txt", "r");
    assert_non_null(file);
    for (; fscanf(file, "%15s %15s", preset, build) == 2; cases++)
        for (int kind = 0; kind < GGUF_KINDS; kind++) {
            assert_int_equal(fscanf(file, "%llx", &expected), 1);
            check_case(preset, build, kind, expected);
        }
    assert_true(feof(file) && cases == 2 * 2);
    fclose(file);
}

/* BF16 and F16 have the blocks of their numbers as floats. */
static void test_dtypes(void **state)
{
    static uint16_t halves[ELEMENTS];
    const char *const presets[] = {"ggml.q8_0", "ggml.q8_K"}, *const builds[] = {"x86", "arm64"};
    for (int k = 0; k < 8; k++) {
        const bool bf16 = k & 1;
        gguf_fill(value, ELEMENTS, 1);
        for (size_t i = 0; i < ELEMENTS; i++) {
            halves[i] = bf16 ? bf16_of_float(value[i]) : f16_of_float(value[i]);
            value[i] = bf16 ? float_of_bf16(halves[i]) : float_of_f16(halves[i]);
        }
        for (size_t i = 0; select_isa(&i); i++) {
            quantize(presets[k >> 2], builds[k >> 1 & 1], QOBS_F32, value, blocks);
            quantize(presets[k >> 2], builds[k >> 1 & 1], bf16 ? QOBS_BF16 : QOBS_F16, halves, others);
            assert_memory_equal(blocks, others, MOST_BYTES);
        }
    }
    qobs_isa_select(NULL, NULL);
}

/* Rows with gaps, each in a call of its own, and several threads. */
static void test_rows(void **state)
{
    enum { BLOCK = 256, GAP = 5, N = ELEMENTS / BLOCK };
    static float apart[N * (BLOCK + GAP)];
    static unsigned char out[N * (Q8_K_BYTES + GAP)];
    gguf_fill(value, ELEMENTS, 12);
    for (size_t i = 0; i < N; i++)
        memcpy(apart + i * (BLOCK + GAP), value + i * BLOCK, BLOCK * sizeof *value);
    for (int k = 0; k < 2; k++) {
        const char *preset = k ? "ggml.q8_K" : "ggml.q8_0";
        const size_t row = bytes_of_row(preset) / (COLUMNS / BLOCK);
        qobs_quantizer *q = quantizer_of(preset, "x86", QOBS_F32, BLOCK, NULL);
        quantize(preset, "x86", QOBS_F32, value, blocks);
        const qobs_quantizer_run_args args = {.struct_size = sizeof args,
                                              .rows = N,
                                              .value = apart,
                                              .value_stride = (BLOCK + GAP) * sizeof(float),
                                              .codes = out,
                                              .codes_stride = (int64_t)row + GAP,
                                              .codes_size = N * (row + GAP) - GAP};
        memset(out, 0x33, sizeof out);
        assert_int_equal(qobs_quantizer_run(q, &args, NULL), QOBS_OK);
        for (size_t i = 0; i < N; i++) {
            assert_memory_equal(out + i * (row + GAP), blocks + i * row, row);
            for (size_t g = 0; g < GAP; g++)
                assert_int_equal(out[i * (row + GAP) + row + g], 0x33);
            run(q, 1, value + i * BLOCK, others, row);
            assert_memory_equal(others, blocks + i * row, row);
        }
        qobs_quantizer_destroy(q);
    }
}

static void test_threads(void **state)
{
    enum { MANY = 64, WIDE = 2048 };
    static float x[MANY * WIDE];
    static unsigned char one[MANY * WIDE * 2], several[MANY * WIDE * 2];
    size_t threads = 4;
    const qobs_executor executor = {sizeof executor, threads, parallel_for, &threads};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = &executor};
    gguf_fill(x, MANY * WIDE, 18);
    for (int k = 0; k < 2; k++) {
        const char *preset = k ? "ggml.q8_K" : "ggml.q8_0";
        const size_t size = (size_t)(MANY * WIDE / (k ? 256 : 32)) * (k ? 292 : 34);
        qobs_quantizer *alone = quantizer_of(preset, "x86", QOBS_F32, WIDE, NULL),
                       *shared = quantizer_of(preset, "x86", QOBS_F32, WIDE, &runtime);
        run(alone, MANY, x, one, size);
        run(shared, MANY, x, several, size);
        assert_memory_equal(one, several, size);
        qobs_quantizer_destroy(alone);
        qobs_quantizer_destroy(shared);
    }
}

/* Scales as an observer has them are those that the blocks store. */
static void test_scales(void **state)
{
    static float scales[ELEMENTS / Q8_0_ELEMENTS];
    const int64_t shape[] = {ROWS, COLUMNS};
    const qobs_tensor tensor = {sizeof tensor, value, QOBS_F32, 2, shape, NULL};
    gguf_fill(value, ELEMENTS, 18);
    for (int k = 0; k < 2; k++) {
        const char *preset = k ? "ggml.q8_K" : "ggml.q8_0";
        const size_t n = ELEMENTS / (k ? Q8_K_ELEMENTS : Q8_0_ELEMENTS), each = k ? Q8_K_BYTES : Q8_0_BYTES;
        qobs_config *config = config_of(preset, "x86");
        const qobs_qparam_buffers buffers = {
            .struct_size = sizeof buffers, .scale = scales, .scale_size = n * sizeof *scales};
        qobs_error error;
        if (qobs_config_qparams_from_tensor(config, &tensor, NULL, &buffers, NULL, &error) != QOBS_OK)
            fail_msg("%s", error.message);
        quantize(preset, "x86", QOBS_F32, value, blocks);
        for (size_t i = 0; i < n; i++) {
            float stored;
            uint16_t half;
            memcpy(&stored, blocks + i * each, sizeof stored);
            memcpy(&half, blocks + i * each, sizeof half);
            assert_true(scales[i] == (k ? stored : float_of_f16(half)));
        }
        qobs_config_destroy(config);
    }
}

static void test_layout(void **state)
{
    qobs_quantized_layout layout = {.struct_size = sizeof layout};
    for (int k = 0; k < 2; k++) {
        qobs_quantizer *q = quantizer_of(k ? "ggml.q8_K" : "ggml.q8_0", "x86", QOBS_BF16, 512, NULL);
        assert_int_equal(qobs_quantizer_layout(q, 3, &layout, NULL), QOBS_OK);
        assert_int_equal(layout.row_size, k ? 2 * 292 : 16 * 34);
        assert_int_equal(layout.codes_size, 3 * layout.row_size);
        assert_int_equal(layout.count, 0);
        assert_int_equal(layout.scale_size, 0);
        assert_int_equal(layout.codes_dtype, QOBS_U8);
        assert_false(layout.has_zero_point);
        qobs_quantizer_destroy(q);
    }
}

static void not_created(qobs_quantizer_args args, const char *message)
{
    qobs_config *config = config_of("ggml.q8_0", "x86");
    qobs_quantizer *q = NULL;
    qobs_error error;
    args.struct_size = sizeof args;
    args.config = config;
    args.dtype = args.dtype ? args.dtype : QOBS_F32;
    assert_int_equal(qobs_quantizer_create(&q, &args, &error), QOBS_ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.message, message);
    qobs_config_destroy(config);
}

static void test_refused_arguments(void **state)
{
    not_created((qobs_quantizer_args){.columns = 48, .dynamic = 1},
                "columns: is 48, blocks of ggml.q8_0 need a multiple of 32");
    not_created((qobs_quantizer_args){.columns = 64},
                "dynamic: is 0, but blocks of ggml.q8_0 hold their scales; 1 finds them");
    not_created((qobs_quantizer_args){.columns = 64, .dynamic = 1, .dtype = QOBS_F64},
                "dtype: is F64, the preset's codes are those of F32, BF16 and F16");
    not_created((qobs_quantizer_args){.columns = 64, .dynamic = 1, .packed = 1},
                "packed: is 1, but codes have 8 bits; packed are codes of 4");
}

static void test_refused_runs(void **state)
{
    qobs_quantizer *q = quantizer_of("ggml.q8_K", "x86", QOBS_F32, COLUMNS, NULL);
    qobs_quantizer_run_args args = {.struct_size = sizeof args,
                                    .rows = ROWS,
                                    .value = value,
                                    .codes = blocks,
                                    .codes_size = ROWS * bytes_of_row("ggml.q8_K")};
    qobs_error error;
    gguf_fill(value, ELEMENTS, 1);
    value[COLUMNS + 9] = NAN;
    assert_int_equal(qobs_quantizer_run(q, &args, &error), QOBS_ERROR_NONFINITE);
    assert_non_null(strstr(error.message, "[1, 9]"));
    value[COLUMNS + 9] = 0;
    args.scale = others;
    args.scale_size = 4;
    assert_int_equal(qobs_quantizer_run(q, &args, &error), QOBS_ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.message, "scale: has 4 bytes, expected 0");
    args.scale = NULL;
    args.scale_size = 0;
    args.codes_size--;
    assert_int_equal(qobs_quantizer_run(q, &args, &error), QOBS_ERROR_INVALID_ARGUMENT);
    args.codes = NULL;
    assert_int_equal(qobs_quantizer_run(q, &args, &error), QOBS_ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.message, "codes: is NULL");
    qobs_quantizer_destroy(q);
}

static void test_refused_codes(void **state)
{
    qobs_config *config = config_of("ggml.q8_0", "x86");
    const int64_t shape[] = {ROWS, COLUMNS}, scale_shape[] = {ROWS, COLUMNS / 32};
    const qobs_tensor tensor = {sizeof tensor, value, QOBS_F32, 2, shape, NULL},
                      scale = {sizeof scale, others, QOBS_F32, 2, scale_shape, NULL};
    const qobs_quantize_args args = {.struct_size = sizeof args,
                                     .config = config,
                                     .value = &tensor,
                                     .scale = &scale,
                                     .codes = blocks,
                                     .codes_size = sizeof blocks};
    qobs_error error;
    assert_int_equal(qobs_quantize(&args, &error), QOBS_ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.message,
                        "config: is ggml.q8_0, whose codes lie in blocks; qobs_quantizer_run makes them");
    qobs_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_refused_arguments),
        cmocka_unit_test(test_refused_runs),
        cmocka_unit_test(test_refused_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
