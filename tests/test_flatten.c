/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Plans against llm-compressor's flatten_for_calibration: one test for each case of the golden suite llmc_flatten,
 * legal and illegal. */
#include "golden.h"
#include "qobs/experimental.h"

/* False for the parts of a case's configuration that no plan has: notes about the case, and the number format, on which
 * flattening does not depend. */
static bool is_setting(const struct json_item *item)
{
    static const char *const others[] = {"has_g_idx", "type", "num_bits"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(item->key, others[i]) == 0)
            return false;
    return item->value || (strcmp(item->key, "scale_dtype") != 0 && strcmp(item->key, "zp_dtype") != 0);
}

/* The message must name what does not go together. */
static void check_refusal(const json_object *c, const qobs_error *error)
{
    const json_object *settings = json_get(c, "config");
    const char *reason = text_of(c, "error"), *base = text_of(settings, "base_name"),
               *strategy = text_of(settings, "strategy");
    assert_true(error->status < 0);
    assert_int_not_equal(error->message[0], '\0');
    if (strstr(reason, "Unknown quantization base name")) {
        assert_has(error->message, "base_name");
        assert_has(error->message, base);
    } else if (strstr(reason, "cannot be applied to") || strstr(reason, "Unknown strategy")) {
        assert_has(error->message, base);
        assert_has(error->message, strategy);
    } else if (strstr(reason, "unflatten")) {
        assert_has(error->message, "group_size");
    } else if (strstr(reason, "strict division")) {
        assert_has(error->message, "block_structure");
    } else { /* a block of a 3-D weight */
        assert_has(reason, "too many values to unpack");
        assert_has(error->message, "3 dimensions");
        assert_has(error->message, strategy);
    }
}

/* Every run holds the next `length` elements of the flattened value, all of one qparam. */
static void check_runs(const qobs_plan *plan, const qobs_tensor *value, const int64_t *shape, int ndim,
                       const void *copy)
{
    const size_t element = qobs_dtype_size(value->dtype);
    const unsigned char *expected = copy, zeros[8] = {0};
    const int64_t runs = qobs_plan_run_count(plan);
    int64_t qparams = 1, elements = shape[0], at = 0;
    qobs_run run;
    qobs_error error;
    for (int i = 1; i < ndim; i++)
        elements *= shape[i];
    for (int i = 1; i < ndim - 1; i++)
        qparams *= shape[i];
    assert_in_range(runs, 1, 2 * elements);
    for (int64_t i = 0; i < runs; i++) {
        assert_int_equal(qobs_plan_run(plan, i, &run, &error), QOBS_OK);
        assert_true(run.length >= 0 && run.length <= elements - at);
        for (int64_t j = 0; j < run.length; j++, at++) {
            const unsigned char *x =
                run.offset == QOBS_PADDING ? zeros : (const unsigned char *)value->data + run.offset + j * run.stride;
            assert_memory_equal(x, expected + (size_t)at * element, element);
            assert_int_equal(run.qparam, at / shape[ndim - 1] % qparams);
        }
    }
    assert_int_equal(at, elements);
    assert_int_equal(qobs_plan_run(plan, runs, &run, &error), QOBS_ERROR_INVALID_ARGUMENT);
    assert_has(error.message, "index");
    assert_int_equal(qobs_plan_run(plan, -1, &run, &error), QOBS_ERROR_INVALID_ARGUMENT);
}

static void check_copy(const qobs_plan *plan, const qobs_tensor *value, const struct st_tensor *expected)
{
    const size_t size = (size_t)(expected->end - expected->begin);
    int64_t shape[QOBS_PLAN_MAX_NDIM];
    qobs_error error;
    assert_int_equal(dtype_in_file(value->dtype), expected->dtype);
    const int ndim = qobs_plan_shape(plan, shape, sizeof shape);
    assert_int_equal(ndim, expected->ndim);
    assert_memory_equal(shape, expected->shape, (size_t)ndim * sizeof *shape);

    void *copy = malloc(size + 1);
    assert_non_null(copy);
    assert_int_equal(qobs_plan_copy(plan, value, copy, size + 1, &error), QOBS_ERROR_INVALID_ARGUMENT);
    assert_has(error.message, "size");
    assert_int_equal(qobs_plan_copy(plan, value, copy, size, &error), QOBS_OK);
    assert_int_equal(error.message[0], '\0');
    assert_memory_equal(copy, expected->data, size);
    check_runs(plan, value, shape, ndim, copy);
    free(copy);
}

static void test_case(void **state)
{
    const json_object *c = *state, *inputs = json_get(c, "inputs");
    const json_object *settings = json_get(c, "config"), *expect = json_get(c, "expect");
    const bool has_g_idx = json_is_true(json_get(settings, "has_g_idx"));
    const qobs_tensor value = tensor_named(json_text(json_at(inputs, 0)));
    qobs_tensor g_idx;
    if (has_g_idx)
        g_idx = tensor_named(json_text(json_at(inputs, 1)));

    qobs_config *config = NULL;
    qobs_plan *plan = NULL;
    qobs_error error;
    int status = configure(&config, "llmc.memoryless_minmax", settings, is_setting, &error);
    if (status == QOBS_OK)
        status = qobs_plan_create(&plan, config, &value, has_g_idx ? &g_idx : NULL, NULL, &error);
    assert_int_equal(status, error.status);
    if (json_has(c, "error")) {
        assert_null(plan);
        check_refusal(c, &error);
    } else {
        if (status != QOBS_OK)
            print_error("%s\n", error.message);
        assert_int_equal(status, QOBS_OK);
        const char *quantity = has_g_idx ? "flattened_stable" : "flattened";
        assert_string_equal(text_of(json_get(c, "compare"), quantity), "exact");
        check_copy(plan, &value, st_find(&tensors, text_of(expect, quantity)));
    }
    qobs_plan_destroy(plan);
    qobs_config_destroy(config);
}

int main(void) { return run_suite("llmc_flatten", "", 150, test_case) != 0; }
