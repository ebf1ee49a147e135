/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observers against upstream, batch by batch, with shapes and dtypes: the cases of the golden suites quark,
 * quark_2026_11 and trt of the classes below, whose results are all exact, on every instruction set of this CPU. */
#include "golden.h"

#include <ctype.h>
#include <math.h>

#include "base/tensor.h"
#include "number/convert.h"
#include "calls.h"

static const char *const classes[] = {"quark.PerTensorMinMaxObserver",
                                      "quark.PerChannelMinMaxObserver",
                                      "quark.PerGroupMinMaxObserver",
                                      "quark.PerTensorPowOf2MinMaxObserver",
                                      "quark.PerChannelPowOf2MinMaxObserver",
                                      "quark.PerBlockMXObserver",
                                      "quark.PerBlockMXBufferReuseObserver",
                                      "quark.PerBlockBFPObserver",
                                      "modelopt.MaxCalibrator"};
enum { CLASSES = sizeof classes / sizeof *classes, CASES = 211 + 441 + 46 };
static size_t compared;

static bool is_setting(const struct json_item *item)
{
    static const char *const others[] = {
        "n_batches", "qparams_after_each_batch", "reset_before_last", "amax_dtype", "amax_shape",
        "result",    "scale_out_dtype"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(item->key, others[i]) == 0)
            return false;
    return true;
}

/* "quark." and the last word of upstream. The suites quark_* hold later releases of it, the suite trt the presets of
 * modelopt. */
static bool preset_of(const json_object *c, char name[64])
{
    const char *suite = text_of(c, "name"), *class = strrchr(text_of(c, "upstream"), ' ') + 1;
    if (strncmp(suite, "trt/", 4) == 0)
        suite = "modelopt/";
    snprintf(name, 64, "%.*s.%s", (int)strcspn(suite, "_/"), suite, class);
    for (size_t i = 0; i < CLASSES; i++)
        if (strcmp(classes[i], name) == 0)
            return true;
    return false;
}

static bool all_finite(const json_object *c)
{
    json_each(key, json_get(c, "inputs"))
    {
        const qobs_tensor t = tensor_named(json_text(key.value));
        int64_t n = 1;
        for (int d = 0; d < t.ndim; d++)
            n *= t.shape[d];
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(qobs_element((const unsigned char *)t.data + (size_t)i * qobs_dtype_size(t.dtype), t.dtype)))
                return false;
    }
    return true;
}

static double number(const void *data, qobs_dtype dtype, size_t i)
{
    int64_t wide;
    int32_t word;
    if (dtype == QOBS_I64)
        return memcpy(&wide, (const unsigned char *)data + 8 * i, 8), (double)wide;
    if (dtype == QOBS_I32)
        return memcpy(&word, (const unsigned char *)data + 4 * i, 4), (double)word;
    return qobs_element((const unsigned char *)data + i * qobs_dtype_size(dtype), dtype);
}

/* Every expected quantity that ends in `suffix`, against the observer. */
static void expect_results(const json_object *c, const qobs_observer *o, const char *suffix)
{
    json_each(item, json_get(c, "expect"))
    {
        char name[64];
        const size_t length = strlen(item.key), end = length - strlen(suffix);
        const bool numbered = length > 2 && item.key[length - 2] == '_' && isdigit((unsigned char)item.key[length - 1]);
        if (length < strlen(suffix) || strcmp(item.key + end, suffix) != 0 || numbered != (*suffix != '\0'))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)end, item.key);
        const qobs_tensor expected = tensor_named(json_text(item.value));
        qobs_result result = {.struct_size = sizeof result};
        qobs_error error;
        if (qobs_observer_result_find(o, name, &result, &error) == QOBS_ERROR_NO_DATA && strstr(name, "_val"))
            continue; /* the range of an observer without data is not read */
        assert_int_equal(error.status, QOBS_OK);
        assert_string_equal(qobs_dtype_name(result.dtype), qobs_dtype_name(expected.dtype));
        assert_int_equal(result.ndim, expected.ndim);
        for (int d = 0; d < result.ndim; d++)
            assert_int_equal(result.shape[d], expected.shape[d]);
        const bool listed = differs_in_zeros(text_of(c, "name"), item.key);
        bool differs = false;
        void *got = malloc(result.size);
        assert_int_equal(qobs_observer_read(o, name, got, result.size, &error), QOBS_OK);
        for (size_t i = 0; i < result.size / qobs_dtype_size(result.dtype); i++) {
            const double e = number(expected.data, expected.dtype, i), g = number(got, result.dtype, i);
            differs |= e == g && !same_number(e, g);
            if (!same_number(e, g) && !(listed && e == g)) {
                print_error("%s[%zu]: got %.9g, expected %.9g\n", item.key, i, g, e);
                assert_true(false);
            }
        }
        assert_true(differs == listed);
        free(got);
    }
}

static void run_case(const json_object *c)
{
    char preset[64];
    assert_true(preset_of(c, preset));
    const json_object *settings = json_get(c, "config");
    const bool refused = json_get(c, "error") != NULL;
    const json_object *inputs = json_get(c, "inputs");
    const bool reset = json_is_true(json_get(settings, "reset_before_last"));
    qobs_config *config = NULL;
    qobs_observer *o = NULL;
    qobs_error error;
    int status = configure(&config, preset, settings, is_setting, &error);
    if (status == QOBS_OK && !all_finite(c) && strncmp(preset, "quark", 5) == 0)
        status = qobs_config_set(config, "nonfinite", "propagate", &error);
    if (status == QOBS_OK)
        status = qobs_observer_create(&o, config, NULL, &error);
    size_t batch = 0;
    json_each(key, inputs)
    {
        if (status != QOBS_OK)
            break;
        if (reset && batch == json_count(inputs) - 1)
            qobs_observer_reset(o);
        const qobs_tensor value = tensor_named(json_text(key.value));
        status = qobs_observer_observe(o, &value, NULL, &error);
        char suffix[16];
        snprintf(suffix, sizeof suffix, "_%zu", batch++);
        if (status == QOBS_OK && !refused)
            expect_results(c, o, suffix);
    }
    if (refused) {
        /* Upstream may raise as late as when it is asked for the result; an empty tensor is ignored here. */
        assert_true(status != QOBS_OK || qobs_observer_result_count(o) == 0 ||
                    call_qparams(o, NULL, 0, NULL, 0, &error) != QOBS_OK);
    } else {
        if (status != QOBS_OK)
            print_error("%s\n", error.message);
        assert_int_equal(status, QOBS_OK);
        expect_results(c, o, "");
    }
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
}

static void test_case(void **state)
{
    char preset[64];
    if (!preset_of(*state, preset) || json_is_true(json_get(*state, "optional")))
        return;
    compared++;
    on_every_isa(*state, run_case);
}

int main(void)
{
    int failed = run_suite("quark", "", 323, test_case);
    failed += run_suite("quark_2026_11", "", 489, test_case);
    failed += run_suite("trt", "max_", 46, test_case);
    if (compared != CASES)
        fprintf(stderr, "%zu cases were compared, expected %d\n", compared, CASES);
    return failed != 0 || compared != CASES;
}
