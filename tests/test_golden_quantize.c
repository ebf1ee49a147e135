/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Codes, numbers of codes and fake-quantized tensors against compressed-tensors' quantize, dequantize and fake_quantize
 * (suite ct_quantize), with the sign of zeros, on every instruction set of this CPU. Codes of integers have no -0, so
 * what upstream computes from floating-point codes is compared without it there.
 *
 * Upstream's dynamic scales of tokens and groups are those of the rows of a weight here.
 *
 * Model-Optimizer's fake_tensor_quant and scaled_e4m3 (suite trt_2026_11) take a magnitude for each row. */
#include "golden.h"

#include "base/tensor.h"
#include "calls.h"
#include "config/config.h"
#include "number/convert.h"

enum { MOST = 1 << 16 };

static bool is_setting(const struct json_item *item)
{
    static const char *const others[] = {"has_zero_point", "has_global_scale", "x_dtype", "scale_dtype_in",
                                         "negative_zeros", "base_name",        "dynamic", "strategy"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(item->key, others[i]) == 0)
            return false;
    return true;
}

static bool flag(const json_object *c, const char *key) { return json_is_true(json_get(json_get(c, "config"), key)); }

static qobs_tensor expected(const json_object *c, const char *quantity)
{
    return tensor_named(text_of(json_get(c, "expect"), quantity));
}

static qobs_tensor input(const json_object *c, int i)
{
    return tensor_named(json_text(json_at(json_get(c, "inputs"), i)));
}

static double number_at(const void *data, qobs_dtype dtype, size_t i)
{
    return qobs_number_of((const unsigned char *)data + i * qobs_dtype_size(dtype), dtype);
}

/* `signs`: the sign of zeros counts. Floating-point results are numbers of the same dtype, or of a wider one that holds
 * what this library gives. */
static void expect_same(const json_object *c, const char *quantity, const void *data, qobs_dtype dtype, bool signs)
{
    const qobs_tensor wanted = expected(c, quantity);
    for (size_t i = 0; i < (size_t)elements_of(&wanted); i++) {
        const double w = number_at(wanted.data, wanted.dtype, i), g = number_at(data, dtype, i);
        if (signs ? !same_number(w, g) : !(w == g || (w != w && g != g)))
            fail_case("%s[%zu]: got %.9g%s, expected %.9g%s", quantity, i, g, signbit(g) ? " (negative)" : "", w,
                      signbit(w) ? " (negative)" : "");
    }
}

static qobs_config *configuration(const json_object *c)
{
    const json_object *settings = json_get(c, "config");
    const char *strategy = text_of(settings, "strategy");
    qobs_config *config;
    qobs_error error;
    if (configure(&config, "llmc.memoryless_minmax", settings, is_setting, &error) != QOBS_OK)
        fail_case("%s", error.message);
    strategy = strcmp(strategy, "token") == 0 ? "channel" : strategy;
    if (flag(c, "has_global_scale") && strcmp(text_of(settings, "base_name"), "input") == 0)
        strategy = "group"; /* the global scale is given */
    assert_int_equal(qobs_config_set(config, "strategy", strategy, &error), QOBS_OK);
    return config;
}

/* ---- Weights: scale and zero point are inputs -------------------------------------------------------------------- */

/* The numbers of codes: integers, or those of the format. */
static void expect_codes(const json_object *c, const qobs_config *config, const unsigned char *codes)
{
    const qobs_tensor wanted = expected(c, "quantized");
    const bool is_float = strcmp(text_of(json_get(c, "config"), "type"), "float") == 0;
    const qobs_format *format = qobs_config_float_format(config);
    static double numbers[MOST];
    for (size_t i = 0; i < (size_t)elements_of(&wanted); i++)
        numbers[i] = is_float ? (double)qobs_format_decode(format, codes[i]) : (double)(int8_t)codes[i];
    expect_same(c, "quantized", numbers, QOBS_F64, is_float);
    if (json_has(json_get(c, "expect"), "quantized_cast"))
        expect_same(c, "quantized_cast", numbers, QOBS_F64, is_float);
}

static void run_weight(const json_object *c)
{
    const qobs_tensor value = input(c, 0), scale = input(c, 1);
    const bool zero_points = flag(c, "has_zero_point"), global = flag(c, "has_global_scale");
    const qobs_tensor zero_point = zero_points ? input(c, 2) : (qobs_tensor){0};
    const qobs_tensor global_scale = global ? input(c, 2 + zero_points) : (qobs_tensor){0};
    const size_t n = (size_t)elements_of(&value);
    qobs_config *config = configuration(c);
    qobs_error error;
    static double out[MOST];
    static unsigned char codes[MOST];
    float g = 1;
    assert_true(n <= MOST);
    if (global)
        memcpy(&g, global_scale.data, sizeof g);
    if (call_fake_quantize(config, NULL, &value, NULL, &scale, zero_points ? &zero_point : NULL, global ? &g : NULL,
                           out, NULL, NULL, &error) != QOBS_OK)
        fail_case("%s", error.message);
    expect_same(c, "fake_quantized", out, value.dtype, true);
    const qobs_quantize_args args = {.struct_size = sizeof args,
                                     .config = config,
                                     .value = &value,
                                     .scale = &scale,
                                     .zero_point = zero_points ? &zero_point : NULL,
                                     .global_scale = global ? &g : NULL,
                                     .codes = codes,
                                     .codes_size = n};
    if (qobs_quantize(&args, &error) != QOBS_OK)
        fail_case("%s", error.message);
    expect_codes(c, config, codes);
    const qobs_tensor wanted = expected(c, "dequantized");
    qobs_tensor coded = value;
    coded.data = codes;
    coded.dtype = QOBS_I8;
    const qobs_dequantize_args back = {.struct_size = sizeof back,
                                       .config = config,
                                       .codes = &coded,
                                       .scale = &scale,
                                       .zero_point = zero_points ? &zero_point : NULL,
                                       .global_scale = global ? &g : NULL,
                                       .out = out,
                                       .out_size = n * qobs_dtype_size(wanted.dtype),
                                       .dtype = wanted.dtype};
    if (qobs_dequantize(&back, &error) != QOBS_OK)
        fail_case("%s", error.message);
    expect_same(c, "dequantized", out, wanted.dtype, strcmp(text_of(json_get(c, "config"), "type"), "float") == 0);
    qobs_config_destroy(config);
}

/* ---- Inputs: scales are computed of the value -------------------------------------------------------------------- */

static void run_input(const json_object *c)
{
    const qobs_tensor value = input(c, 0);
    const bool global = flag(c, "has_global_scale");
    const qobs_tensor global_scale = global ? input(c, 1) : (qobs_tensor){0};
    qobs_config *config = configuration(c);
    qobs_error error;
    static double min[MOST], max[MOST], scale[MOST], zero_point[MOST], out[MOST];
    float g = 1;
    if (global)
        memcpy(&g, global_scale.data, sizeof g);
    const size_t qparams = call_count(config, &value, NULL);
    qobs_dtype scale_dtype, zero_point_dtype;
    assert_int_equal(call_minmax(config, &value, NULL, min, max, NULL, NULL, &error), QOBS_OK);
    if (call_calculate_qparams(config, value.dtype, qparams, min, max, global ? &g : NULL, scale, zero_point, &error) !=
        QOBS_OK)
        fail_case("%s", error.message);
    assert_int_equal(qobs_config_qparam_dtypes(config, value.dtype, &scale_dtype, &zero_point_dtype, &error), QOBS_OK);
    scale_dtype = global ? QOBS_F32 : scale_dtype;
    expect_same(c, "scale", scale, scale_dtype, true);
    expect_same(c, "zero_point", zero_point, zero_point_dtype, true);
    const int64_t shape[] = {(int64_t)qparams};
    const qobs_tensor scales = {
        .struct_size = sizeof scales, .data = scale, .dtype = scale_dtype, .ndim = 1, .shape = shape};
    qobs_tensor zero_points = scales;
    zero_points.data = zero_point;
    zero_points.dtype = zero_point_dtype;
    if (call_fake_quantize(config, NULL, &value, NULL, &scales, &zero_points, global ? &g : NULL, out, NULL, NULL,
                           &error) != QOBS_OK)
        fail_case("%s", error.message);
    expect_same(c, "fake_quantized", out, value.dtype, true);
    qobs_config_destroy(config);
}

/* ---- Model-Optimizer: a magnitude for each row ------------------------------------------------------------------- */

static void run_amax(const json_object *c)
{
    const qobs_tensor value = input(c, 0), amax = input(c, 1), wanted = expected(c, "fake_quantized");
    static double out[MOST];
    qobs_config *config;
    qobs_error error;
    if (configure(&config, "modelopt.MseCalibrator", json_get(c, "config"), is_setting, &error) != QOBS_OK)
        fail_case("%s", error.message);
    assert_int_equal(qobs_config_set(config, "axis", "0", &error), QOBS_OK);
    const qobs_fake_quantize_args args = {.struct_size = sizeof args,
                                          .config = config,
                                          .value = &value,
                                          .out = out,
                                          .out_size = (size_t)elements_of(&value) * qobs_dtype_size(value.dtype),
                                          .amax = &amax};
    assert_true(args.out_size <= sizeof out);
    if (qobs_fake_quantize(&args, &error) != QOBS_OK)
        fail_case("%s", error.message);
    assert_int_equal(wanted.dtype, value.dtype);
    expect_same(c, "fake_quantized", out, value.dtype, true);
    qobs_config_destroy(config);
}

static void test_case(void **state)
{
    const bool weight = json_has(json_get(*state, "expect"), "quantized");
    on_every_isa(*state, weight ? run_weight : run_input);
}

static void test_amax(void **state) { on_every_isa(*state, run_amax); }

int main(void)
{
    int failed = run_suite("ct_quantize", "", 254, test_case);
    failed += run_suite("trt_2026_11", "now_int_fake", 5, test_amax);
    failed += run_suite("trt_2026_11", "now_e4m3_fake", 15, test_amax);
    return failed != 0;
}
