/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The presets with optimal scales against a brute force over every candidate: golden suite search2, on every usable
 * instruction set, which must give the same bits. If several candidates are as good as equal, ours may be any of
 * them. */
#include "golden.h"

#include "search_reference.h"

enum { MOST = 128 };

/* The results of an observer for a case. */
struct answer {
    size_t n, rows; /* rows: of blocks of several groups, else 0 */
    double row_error[MOST], start_row_error[MOST];
    double scale[MOST], error[MOST], minmax_error[MOST], energy[MOST], global_scale;
    int64_t zero_point[MOST];
    double importance[MOST], tokens; /* sums of squares of columns */
};

static double number_of(const json_object *object, const char *key)
{
    return json_object_get_double(json_get(object, key));
}

static bool is_true(const json_object *c, const char *key)
{
    return json_is_true(json_get(json_get(c, "config"), key));
}

/* Settings that this preset has; the rest of the case's list has its default value. */
static bool is_setting(const struct json_item *item)
{
    return strcmp(item->key, "preset") != 0 && strcmp(item->key, "nan_policy") != 0;
}

static qobs_observer *observer_of(const json_object *c)
{
    const json_object *settings = json_get(c, "config");
    qobs_config *config;
    qobs_observer *o;
    qobs_error error;
    qobs_setting_info info = {.struct_size = sizeof info};
    assert_int_equal(qobs_config_create(&config, text_of(settings, "preset"), NULL, &error), QOBS_OK);
    json_each(item, settings) if (is_setting(&item) && qobs_config_key_info(config, item.key, &info, NULL) == QOBS_OK)
    {
        char *value = json_print(item.value, JSON_LINE);
        const size_t length = strlen(value);
        const bool quoted = json_is_string(item.value);
        value[length - quoted] = '\0';
        if (qobs_config_set(config, item.key, value + quoted, &error) != QOBS_OK)
            fail_case("%s", error.message);
        free(value);
    }
    if (strcmp(text_of(settings, "scale_dtype"), "float8_e4m3fn") == 0)
        assert_int_equal(qobs_config_set(config, "strategy", "tensor_group", &error), QOBS_OK);
    assert_int_equal(qobs_config_set(config, "nonfinite", text_of(settings, "nan_policy"), &error), QOBS_OK);
    if (qobs_observer_create(&o, config, NULL, &error) != QOBS_OK)
        fail_case("%s", error.message);
    qobs_config_destroy(config);
    return o;
}

static size_t read_doubles(const qobs_observer *o, const char *name, double *out)
{
    qobs_result result;
    unsigned char *data = result_data(o, name, &result);
    const size_t n = result.size / qobs_dtype_size(result.dtype);
    assert_true(n <= MOST);
    for (size_t i = 0; i < n; i++)
        out[i] = result.dtype == QOBS_I8    ? (double)(int8_t)data[i]
                 : result.dtype == QOBS_I64 ? (double)*(int64_t *)(void *)data
                                            : reference_number(data, result.dtype, i);
    free(data);
    return n;
}

/* Observes the case; false: the weight was refused. */
static bool observe(const json_object *c, struct answer *a)
{
    qobs_observer *o = observer_of(c);
    qobs_error error;
    json_each(key, json_get(c, "aux"))
    {
        const qobs_tensor activations = tensor_named(json_text(key.value));
        assert_int_equal(qobs_observer_observe_importance(o, &activations, &error), QOBS_OK);
    }
    const qobs_tensor weight = tensor_named(json_text(json_at(json_get(c, "inputs"), 0)));
    const bool accepted = qobs_observer_observe(o, &weight, NULL, &error) == QOBS_OK;
    if (accepted) {
        double zero_point[MOST];
        a->n = read_doubles(o, "scale", a->scale);
        assert_int_equal(read_doubles(o, "error", a->error), a->n);
        assert_int_equal(read_doubles(o, "minmax_error", a->minmax_error), a->n);
        assert_int_equal(read_doubles(o, "energy", a->energy), a->n);
        assert_int_equal(read_doubles(o, "zero_point", zero_point), a->n);
        for (size_t i = 0; i < a->n; i++)
            a->zero_point[i] = (int64_t)zero_point[i];
        if (qobs_observer_result_find(o, "row_error", &(qobs_result){.struct_size = sizeof(qobs_result)}, NULL) == 0) {
            a->rows = read_doubles(o, "row_error", a->row_error);
            assert_int_equal(read_doubles(o, "start_row_error", a->start_row_error), a->rows);
        }
        if (qobs_observer_result_find(o, "imatrix_sum", &(qobs_result){.struct_size = sizeof(qobs_result)}, NULL) ==
            0) {
            read_doubles(o, "imatrix_sum", a->importance);
            read_doubles(o, "imatrix_count", &a->tokens);
        }
        if (qobs_observer_result_find(o, "global_scale", &(qobs_result){.struct_size = sizeof(qobs_result)}, NULL) == 0)
            read_doubles(o, "global_scale", &a->global_scale);
    }
    qobs_observer_destroy(o);
    return accepted;
}

/* The specification rounds products of activations to float. Each entry of H is off by that, and e^T H e by at most
 * this much, which with few tokens is more than 1e-5 of an error that cancels. */
static double rounding_of_products(const json_object *c, const struct answer *a, size_t i)
{
    const json_object *config = json_get(c, "config");
    const qobs_tensor w = tensor_named(json_text(json_at(json_get(c, "inputs"), 0)));
    const double size = number_of(config, "group_size"), limit = ldexp(1, (int)number_of(config, "num_bits") - 1);
    const size_t columns = (size_t)w.shape[1], group = size > 0 ? (size_t)size : columns;
    const size_t groups = (columns + group - 1) / group, row = i / groups, first = i % groups * group;
    double sum = 0;
    if (strcmp(text_of(config, "type"), "int") != 0 || a->tokens == 0)
        return 0;
    for (size_t j = first; j < first + group && j < columns; j++) {
        const double x = reference_number(w.data, w.dtype, row * columns + j), z = (double)a->zero_point[i];
        const double q = fmin(fmax(rint(x / a->scale[i] + z), -limit), limit - 1) - z;
        sum += fabs(q * a->scale[i] - x) * sqrt(a->importance[j] / a->tokens);
    }
    return isfinite(sum) ? 0x1p-23 * sum * sum : 0;
}

static bool is_near(double a, double b) { return fabs(a - b) <= 1e-5 * fabs(b) || (isnan(a) && isnan(b)); }

/* The scales expected, or others whose error is hardly larger: a tie decided otherwise sends the descent another way.
 */
static void check_descent(const json_object *c, const struct answer *a)
{
    const json_object *expect = json_get(c, "expect");
    const qobs_tensor scale = tensor_named(text_of(expect, "scale")),
                      error = tensor_named(text_of(expect, "row_error")),
                      start = tensor_named(text_of(expect, "start_row_error"));
    const struct st_tensor *zero_point =
        is_true(c, "symmetric") ? NULL : st_find(&tensors, text_of(expect, "zero_point"));
    const bool global = json_get(expect, "global_scale") != NULL;
    const size_t groups = (size_t)scale.shape[1];
    assert_int_equal(a->rows, scale.shape[0]);
    for (size_t r = 0; r < a->rows; r++) {
        const double wanted = double_at(error.data, r);
        bool same = true;
        for (size_t i = r * groups; i < (r + 1) * groups; i++) {
            const double s = global ? (double)((float)a->scale[i] / (float)a->global_scale) : a->scale[i];
            same &= s == reference_number(scale.data, scale.dtype, i) &&
                    a->zero_point[i] == (zero_point ? ((const int8_t *)zero_point->data)[i] : 0);
        }
        if (same ? !is_near(a->row_error[r], wanted) : a->row_error[r] > 1.005 * wanted)
            fail_case("row %zu: error %.9g, expected %.9g with%s scales", r, a->row_error[r], wanted,
                      same ? " the same" : " other");
        assert_true(a->row_error[r] <= a->start_row_error[r]);
        if (same)
            assert_true(is_near(a->start_row_error[r], double_at(start.data, r)));
    }
}

static void check(const json_object *c, const struct answer *a)
{
    if (json_get(json_get(c, "expect"), "row_error")) {
        check_descent(c, a);
        return;
    }
    const bool hessian = strcmp(text_of(json_get(c, "config"), "preset"), "qobs.local_hessian") == 0;
    const double tolerance = hessian ? 2e-5 : 2e-6; /* sums of activations are rounded */
    assert_int_equal(a->rows, 0);
    const json_object *expect = json_get(c, "expect");
    const qobs_tensor scale = tensor_named(text_of(expect, "scale")), error = tensor_named(text_of(expect, "error"));
    const qobs_tensor minmax = tensor_named(text_of(expect, "minmax_error")),
                      energy = tensor_named(text_of(expect, "energy"));
    const struct st_tensor *unique = st_find(&tensors, text_of(expect, "unique"));
    const struct st_tensor *zero_point =
        is_true(c, "symmetric") ? NULL : st_find(&tensors, text_of(expect, "zero_point"));
    const json_object *global = json_get(expect, "global_scale");
    if (global) {
        const qobs_tensor g = tensor_named(json_text(global));
        assert_true(reference_number(g.data, g.dtype, 0) == a->global_scale);
    }
    assert_int_equal(scale.shape[0] * scale.shape[1], a->n);
    for (size_t i = 0; i < a->n; i++) {
        const double s = global ? (double)((float)a->scale[i] / (float)a->global_scale) : a->scale[i];
        const double wanted = reference_number(scale.data, scale.dtype, i), best = double_at(error.data, i);
        const int64_t z = zero_point ? ((const int8_t *)zero_point->data)[i] : 0;
        const bool same = s == wanted && a->zero_point[i] == z;
        if (!same && (((const uint8_t *)unique->data)[i] ||
                      a->error[i] > best * (1 + tolerance) + 1e-12 * double_at(energy.data, i)))
            fail_case("[%zu]: scale %.9g, zero point %lld, error %.9g; expected %.9g, %lld, %.9g", i, s,
                      (long long)a->zero_point[i], a->error[i], wanted, (long long)z, best);
        if (same)
            assert_true(is_near(a->error[i], best) ||
                        (hessian && fabs(a->error[i] - best) <= rounding_of_products(c, a, i)));
        assert_true(is_near(a->minmax_error[i], double_at(minmax.data, i)));
        assert_true(is_near(a->energy[i], double_at(energy.data, i)));
    }
}

static void test_case(void **state)
{
    const json_object *c = *state;
    struct answer first = {0};
    for (size_t i = 0; select_isa(&i); i++) {
        struct answer a = {0};
        const bool accepted = observe(c, &a);
        assert_int_equal(accepted, json_get(c, "error") == NULL);
        if (accepted)
            check(c, &a);
        if (i == 0)
            first = a;
        assert_memory_equal(&a, &first, sizeof a);
    }
    qobs_isa_select(NULL, NULL);
}

int main(void)
{
    int failed = run_suite("search2", "mse_optimal", 25, test_case);
    failed += run_suite("search2", "imatrix_optimal", 34, test_case);
    failed += run_suite("search2", "local_hessian", 36, test_case);
    failed += run_suite("search2", "descent", 9, test_case);
    return failed != 0;
}
