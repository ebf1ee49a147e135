/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Conventions against upstream: every case of the golden suite ct_qparams (calculate_qparams and generate_gparam of
 * compressed-tensors), and llm-compressor's fused observers (llmc_minmax, cases fused_*). */
#include "golden.h"

#include <math.h>

#include "number/number.h"
#include "qobs/stateless.h"
#include "calls.h"

static double number_at(const void *data, qobs_dtype dtype, size_t i)
{
    const unsigned char *p = data;
    uint16_t half;
    float single;
    int64_t wide;
    int32_t word;
    int16_t narrow;
    switch (dtype) {
    case QOBS_F32:
        return memcpy(&single, p + 4 * i, 4), (double)single;
    case QOBS_BF16:
        return memcpy(&half, p + 2 * i, 2), (double)float_of_bf16(half);
    case QOBS_F16:
        return memcpy(&half, p + 2 * i, 2), (double)float_of_f16(half);
    case QOBS_I64:
        return memcpy(&wide, p + 8 * i, 8), (double)wide;
    case QOBS_I32:
        return memcpy(&word, p + 4 * i, 4), (double)word;
    case QOBS_I16:
        return memcpy(&narrow, p + 2 * i, 2), (double)narrow;
    case QOBS_I8:
        return (double)((const int8_t *)p)[i];
    case QOBS_U8:
        return (double)p[i];
    default:
        assert_int_equal(dtype, QOBS_F8_E4M3);
    }
    const int exponent = p[i] >> 3 & 15, fraction = p[i] & 7;
    if ((p[i] & 127) == 127)
        return NAN;
    const double magnitude = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return p[i] & 128 ? -magnitude : magnitude;
}

/* Equal numbers; floats of the same dtype, where upstream's is no 8-bit float. */
static void expect_numbers(const char *what, const struct st_tensor *expected, const void *got, qobs_dtype dtype)
{
    int64_t n = 1;
    for (int d = 0; d < expected->ndim; d++)
        n *= expected->shape[d];
    if (dtype != QOBS_F8_E4M3 && qobs_dtype_size(dtype) > 1 && strchr(dtype_name(expected->dtype), 'F'))
        assert_int_equal(dtype_in_file(dtype), expected->dtype);
    for (int64_t i = 0; i < n; i++) {
        const double e = number_at(expected->data, dtype_in_library(expected->dtype), (size_t)i);
        const double g = number_at(got, dtype, (size_t)i);
        if (!same_number(e, g)) {
            print_error("%s[%lld]: got %.9g, expected %.9g\n", what, (long long)i, g, e);
            assert_true(false);
        }
    }
}

static bool is_setting(const struct json_item *item)
{
    static const char *const others[] = {
        "has_global_scale", "scale_out_dtype", "zero_point_out_dtype", "dtype",
        "n_batches",        "fused",           "importance",           "global_scale_dtype"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(item->key, others[i]) == 0)
            return false;
    return true;
}

static const struct st_tensor *expected_tensor(const json_object *c, const char *quantity)
{
    const json_object *key = json_get(json_get(c, "expect"), quantity);
    const json_object *rule = json_get(json_get(c, "compare"), quantity);
    if (!key)
        return NULL;
    /* Results that a tie could change are the same, too. */
    assert_true(!rule || strcmp(json_text(rule), "exact") == 0 || strcmp(json_text(rule), "platform") == 0 ||
                strcmp(json_text(rule), "argmin-tie") == 0);
    const struct st_tensor *t = st_find(&tensors, json_text(key));
    assert_non_null(t);
    return rule && strcmp(json_text(rule), "platform") == 0 ? NULL : t;
}

/* As call_calculate_qparams, with a global scale of any dtype. */
static int calculate(const qobs_config *config, qobs_dtype dtype, size_t n, const void *min, const void *max,
                     const float *global_scale, qobs_dtype global_dtype, void *scale, void *zero_point,
                     qobs_error *error)
{
    qobs_dtype scale_dtype, zero_point_dtype;
    if (!global_scale || global_dtype == QOBS_F32)
        return call_calculate_qparams(config, dtype, n, min, max, global_scale, scale, zero_point, error);
    assert_int_equal(qobs_config_qparam_dtypes(config, dtype, &scale_dtype, &zero_point_dtype, error), QOBS_OK);
    const qobs_qparams_from_ranges_args args = {
        .struct_size = sizeof args,
        .config = config,
        .dtype = dtype,
        .count = n,
        .min = min,
        .max = max,
        .size = n * qobs_dtype_size(dtype),
        .global_scale = global_scale,
        .scale = scale,
        .scale_size = n * qobs_dtype_size(global_dtype == dtype ? scale_dtype : QOBS_F32),
        .zero_point = zero_point,
        .zero_point_size = n * qobs_dtype_size(zero_point_dtype),
        .global_scale_dtype = global_dtype,
    };
    return qobs_qparams_from_ranges(&args, error);
}

static void run_ranges(const json_object *c)
{
    const json_object *inputs = json_get(c, "inputs");
    const json_object *settings = json_get(c, "config");
    const qobs_tensor min = tensor_named(json_text(json_at(inputs, 0)));
    const qobs_tensor max = tensor_named(json_text(json_at(inputs, 1)));
    const bool has_global = json_is_true(json_get(settings, "has_global_scale"));
    const qobs_tensor global_tensor = has_global ? tensor_named(json_text(json_at(inputs, 2))) : min;
    size_t n = 1;
    for (int d = 0; d < min.ndim; d++)
        n *= (size_t)min.shape[d];
    assert_true(n <= 4096);

    qobs_config *config = NULL;
    qobs_error error;
    double scale[4096], zero_point[4096], lows[4096], highs[4096]; /* room for any dtype, aligned: files are not */
    memcpy(lows, min.data, n * qobs_dtype_size(min.dtype));
    memcpy(highs, max.data, n * qobs_dtype_size(max.dtype));
    const float shared = has_global ? (float)number_at(global_tensor.data, global_tensor.dtype, 0) : 0;
    int status = configure(&config, "llmc.memoryless_minmax", settings, is_setting, &error);
    const struct st_tensor *global_scale = expected_tensor(c, "global_scale");
    if (global_scale) {
        const qobs_dtype dtype = min.dtype;
        float got;
        const double low = number_at(min.data, dtype, 0), high = number_at(max.data, dtype, 0);
        assert_int_equal(status, QOBS_OK);
        status = qobs_global_scale(config, min.dtype, low, high, &got, &error);
        if (isfinite(low) && isfinite(high)) { /* upstream has 1 for NaN and 0 for infinity */
            assert_int_equal(status, QOBS_OK);
            expect_numbers("global_scale", global_scale, &got, QOBS_F32);
        } else {
            assert_int_equal(status, QOBS_ERROR_INVALID_ARGUMENT);
            assert_has(error.message, isfinite(low) ? "max: is" : "min: is");
        }
    } else {
        if (status == QOBS_OK)
            status = calculate(config, min.dtype, n, lows, highs, has_global ? &shared : NULL, global_tensor.dtype,
                               scale, zero_point, &error);
        if (json_has(c, "error")) {
            assert_int_equal(status, QOBS_ERROR_INVALID_ARGUMENT);
            assert_int_not_equal(error.message[0], '\0');
        } else {
            qobs_dtype scale_dtype, zero_point_dtype;
            if (status != QOBS_OK)
                print_error("%s\n", error.message);
            assert_int_equal(status, QOBS_OK);
            assert_int_equal(qobs_config_qparam_dtypes(config, min.dtype, &scale_dtype, &zero_point_dtype, &error),
                             QOBS_OK);
            if (has_global && global_tensor.dtype != min.dtype)
                scale_dtype = QOBS_F32;
            expect_numbers("scale", expected_tensor(c, "scale"), scale, scale_dtype);
            if (expected_tensor(c, "zero_point"))
                expect_numbers("zero_point", expected_tensor(c, "zero_point"), zero_point, zero_point_dtype);
        }
    }
    qobs_config_destroy(config);
}

static void test_ranges(void **state) { on_every_isa(*state, run_ranges); }

/* Quark's two quantizers of fp4: the scales of the first are realigned with the scale of the second. */
static void run_realigned(const json_object *c)
{
    const json_object *inputs = json_get(c, "inputs");
    const struct st_tensor *blocks = expected_tensor(c, "block_scale");
    const qobs_format *e4m3 = qobs_format_find("fp8_e4m3");
    const qobs_tensor amax = tensor_named(json_text(json_at(inputs, 0)));
    const float global = (float)number_at(tensor_named(json_text(json_at(inputs, 1))).data, QOBS_F32, 0);
    const size_t n = (size_t)(amax.shape[0] * amax.shape[1]);
    float magnitudes[64], scale[64], block[64];
    qobs_config *config = NULL;
    qobs_error error;
    assert_true(n <= 64);
    memcpy(magnitudes, amax.data, n * sizeof *magnitudes);
    assert_int_equal(qobs_config_create(&config, "quark.PerBlockMXObserver", NULL, &error), QOBS_OK);
    assert_int_equal(qobs_config_set_all(config, "dtype=fp4 scale_format=float32 ch_axis=-1 group_size=16", &error),
                     QOBS_OK);
    const qobs_qparams_from_ranges_args args = {.struct_size = sizeof args,
                                                .config = config,
                                                .dtype = QOBS_F32,
                                                .count = n,
                                                .min = magnitudes,
                                                .max = magnitudes,
                                                .size = n * sizeof *magnitudes,
                                                .global_scale = &global,
                                                .scale = scale,
                                                .scale_size = n * sizeof *scale};
    if (qobs_qparams_from_ranges(&args, &error) != QOBS_OK)
        fail_case("%s", error.message);
    expect_numbers("scale", expected_tensor(c, "scale"), scale, QOBS_F32);
    for (size_t i = 0; i < n; i++)
        block[i] = qobs_format_round(e4m3, scale[i] / global, true);
    expect_numbers("block_scale", blocks, block, QOBS_F32);
    qobs_config_destroy(config);
}

static void test_realigned(void **state) { on_every_isa(*state, run_realigned); }

/* An observer that has seen the importance of the case, if it has any. */
static void start_observer(qobs_observer **observer, const qobs_config *config, const json_object *c)
{
    const json_object *aux = json_get(c, "aux");
    qobs_error error;
    assert_int_equal(qobs_observer_create(observer, config, NULL, &error), QOBS_OK);
    json_each(activation, aux)
    {
        const qobs_tensor value = tensor_named(json_text(activation.value));
        assert_int_equal(qobs_observer_observe_importance(*observer, &value, &error), QOBS_OK);
    }
}

/* True for the errors of every candidate, which an observer does not keep. */
static bool is_trace(const struct json_item *item) { return strncmp(item->key, "errors_", 7) == 0; }

static size_t results_of(const json_object *c)
{
    size_t n = 0;
    json_each(item, json_get(c, "expect")) n += !is_trace(&item);
    return n;
}

/* One observer an input; results carry the observer's number. */
static void run_fused(const json_object *c)
{
    enum { MOST = 6 };
    const json_object *inputs = json_get(c, "inputs");
    const json_object *settings = json_get(c, "config");
    qobs_observer *observers[MOST] = {0};
    qobs_config *config = NULL;
    qobs_error error;
    size_t n = 0;
    const size_t members = json_count(json_get(settings, "fused"));
    char preset[64];
    snprintf(preset, sizeof preset, "llmc.%s", text_of(settings, "observer"));
    assert_int_equal(configure(&config, preset, settings, is_setting, &error), QOBS_OK);
    if (strncmp(text_of(c, "name"), "llmc_2026_10/", 13) == 0)
        assert_int_equal(qobs_config_set(config, "version", "2026-10", &error), QOBS_OK);
    assert_true(members >= 2 && members <= MOST);
    json_each(item, inputs)
    {
        const qobs_tensor value = tensor_named(json_text(item.value));
        const size_t member = n++ % members;
        if (!observers[member])
            start_observer(&observers[member], config, c);
        assert_int_equal(qobs_observer_observe(observers[member], &value, NULL, &error), QOBS_OK);
    }
    assert_int_equal(n % members, 0);
    assert_int_equal(qobs_observers_fuse(observers, members, &error), QOBS_OK);
    size_t compared = 0;
    for (size_t m = 0; m < members; m++) {
        for (size_t i = 0; i < qobs_observer_result_count(observers[m]); i++) {
            qobs_result result = {.struct_size = sizeof result};
            char quantity[96];
            double data[8192]; /* room for any dtype */
            assert_int_equal(qobs_observer_result_info(observers[m], i, &result, &error), QOBS_OK);
            assert_true(result.size <= sizeof data);
            assert_int_equal(qobs_observer_read(observers[m], result.name, data, result.size, &error), QOBS_OK);
            snprintf(quantity, sizeof quantity, "%s_%zu", result.name, m);
            const bool trace = strncmp(quantity, "errors_", 7) == 0;
            const struct st_tensor *expected = trace ? NULL : expected_tensor(c, quantity);
            if (expected) {
                expect_numbers(quantity, expected, data, result.dtype);
                compared++;
            }
        }
        qobs_observer_destroy(observers[m]);
    }
    assert_int_equal(compared, results_of(c));
    qobs_config_destroy(config);
}

static void test_fused(void **state) { on_every_isa(*state, run_fused); }

int main(void)
{
    int failed = run_suite("ct_qparams", "", 300, test_ranges);
    failed += run_suite("ct_qparams_2026_11", "", 171, test_ranges);
    failed += run_suite("quark_2026_11", "realign", 6, test_realigned);
    failed += run_suite("llmc_minmax", "fused", 9, test_fused);
    failed += run_suite("llmc_minmax_2026_11", "now_fused", 37, test_fused);
    failed += run_suite("llmc_mse_2026_11", "now_fused", 12, test_fused);
    failed += run_suite("llmc_2026_10", "fuse_", 32, test_fused);
    return failed != 0;
}
