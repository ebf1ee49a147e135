/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Shared by tests that read golden suites. */
#ifndef QOBS_TEST_GOLDEN_H
#define QOBS_TEST_GOLDEN_H

#include <math.h>

#include "unit.h"
#undef fail /* cmocka's macro; the program has a function of that name */

#include "files/json.h"

#include "qobs/qobs.h"
#include "files/safetensors.h"
#include "whole_file.h"

/* The suite that is open, and its directory. */
static struct st_file tensors;
static const char *golden_directory = ".";

/* Equal with the sign of zero. NaN are equal: their sign and payload are those of the machine's instructions. */
static inline bool same_number(double a, double b)
{
    return (a == b && !signbit(a) == !signbit(b)) || (isnan(a) && isnan(b));
}

/* True if zero_signs.txt says that this result has zeros of the other sign than upstream's. */
static inline bool differs_in_zeros(const char *name, const char *quantity)
{
    char path[1024], line[256], wanted[256];
    snprintf(path, sizeof path, "%s/zero_signs.txt", golden_directory);
    snprintf(wanted, sizeof wanted, "%s %s\n", name, quantity);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    bool found = false;
    while (!found && fgets(line, sizeof line, file))
        found = strcmp(line, wanted) == 0;
    fclose(file);
    return found;
}

static inline void expect_word(const char *text, const char *word, const char *file, int line)
{
    if (strstr(text, word))
        return;
    print_error("'%s' is not in: %s\n", word, text);
    _fail(file, line);
}
#define fail_case(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))
#define assert_has(text, word) expect_word(text, word, __FILE__, __LINE__)

static inline int64_t elements_of(const qobs_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

/* The result `name`, to be freed; its description in *result. */
static inline void *result_data(const qobs_observer *o, const char *name, qobs_result *result)
{
    qobs_error error;
    *result = (qobs_result){.struct_size = sizeof *result};
    if (qobs_observer_result_find(o, name, result, &error) != QOBS_OK)
        fail_case("%s: %s", name, error.message);
    void *data = malloc(result->size + 1);
    assert_int_equal(qobs_observer_read(o, name, data, result->size, &error), QOBS_OK);
    return data;
}

static inline const char *text_of(const json_object *object, const char *key)
{
    const json_object *item = json_get(object, key);
    assert_true(json_is_string(item));
    return json_text(item);
}

static inline qobs_tensor tensor_named(const char *name)
{
    const struct st_tensor *t = st_find(&tensors, name);
    assert_non_null(t);
    qobs_tensor tensor = {.struct_size = sizeof tensor, .data = t->data, .ndim = t->ndim, .shape = t->shape};
    tensor.dtype = dtype_in_library(t->dtype);
    assert_int_not_equal(tensor.dtype, 0);
    return tensor;
}

/* Element i of doubles at any address, as those of a suite are. */
static inline double double_at(const void *data, size_t i)
{
    double d;
    memcpy(&d, (const unsigned char *)data + i * sizeof d, sizeof d);
    return d;
}

/* Element i of F32 or F64, as errors of candidates are. */
static inline double real_at(const qobs_tensor *t, size_t i)
{
    float narrow;
    if (t->dtype == QOBS_F64)
        return double_at(t->data, i);
    assert_int_equal(t->dtype, QOBS_F32);
    memcpy(&narrow, (const unsigned char *)t->data + i * sizeof narrow, sizeof narrow);
    return (double)narrow;
}

static inline int64_t integer_at(const qobs_tensor *t, size_t i)
{
    int32_t narrow;
    int64_t wide;
    if (t->dtype == QOBS_I32) {
        memcpy(&narrow, (const unsigned char *)t->data + i * sizeof narrow, sizeof narrow);
        return narrow;
    }
    assert_int_equal(t->dtype, QOBS_I64);
    memcpy(&wide, (const unsigned char *)t->data + i * sizeof wide, sizeof wide);
    return wide;
}

/* A configuration of `preset` with every setting of the case that `is_setting` lets pass. */
static inline int configure(qobs_config **config, const char *preset, const json_object *settings,
                            bool (*is_setting)(const struct json_item *), qobs_error *error)
{
    int status = qobs_config_create(config, preset, NULL, error);
    json_each(item, settings) if (status == QOBS_OK && is_setting(&item))
    {
        char *value = json_print(item.value, JSON_LINE);
        status = qobs_config_set(*config, item.key, value, error);
        free(value);
    }
    return status;
}

static inline json_object *read_cases(const char *path)
{
    size_t size;
    char *text = whole_file(path, &size);
    json_object *cases = NULL;
    if (!text)
        fprintf(stderr, "%s: cannot be read\n", path);
    else if (json_parse_value(&cases, text) != 0)
        fprintf(stderr, "%s: is not valid JSON\n", path);
    free(text);
    return cases;
}

/* Runs a case on every instruction set of this CPU. */
static inline void on_every_isa(const json_object *c, void (*run)(const json_object *))
{
    for (size_t i = 0; select_isa(&i); i++)
        run(c);
    assert_int_equal(qobs_isa_select(NULL, NULL), QOBS_OK);
}

/* Runs `test` on every case of a suite whose name begins with `prefix` (after "SUITE/"); there must be `count` of them.
 * takes: says which of them are run; NULL: all. The suite's directory is the environment variable QOBS_GOLDEN_DIR, or
 * else the macro of that name. Returns how many failed. */
static inline int run_some(const char *suite, const char *prefix, size_t count, bool (*takes)(const json_object *c),
                           void (*test)(void **))
{
    enum { MOST = 500 };
    static struct CMUnitTest tests[MOST];
    const char *directory = getenv("QOBS_GOLDEN_DIR");
#ifdef QOBS_GOLDEN_DIR
    directory = directory ? directory : QOBS_GOLDEN_DIR;
#endif
    golden_directory = directory ? directory : ".";
    char path[1024], start[128];
    struct fail f;
    snprintf(path, sizeof path, "%s/%s.json", golden_directory, suite);
    snprintf(start, sizeof start, "%s/%s", suite, prefix);
    json_object *cases = read_cases(path);
    snprintf(path, sizeof path, "%s/%s.safetensors", golden_directory, suite);
    if (!cases || st_open(&tensors, path, &f) != 0) {
        fprintf(stderr, "%s\n", cases ? f.message : "no cases");
        return 1;
    }
    size_t n = 0, run = 0;
    json_each(c, cases)
    {
        const char *name = text_of(c.value, "name");
        if (strncmp(name, start, strlen(start)) != 0 || n++ >= MOST || (takes && !takes(c.value)))
            continue;
        tests[run++] = (struct CMUnitTest){.name = name, .test_func = test, .initial_state = c.value};
    }
    int failed = 1;
    if (n == count)
        failed = _cmocka_run_group_tests(suite, tests, run, NULL, NULL);
    else
        fprintf(stderr, "%s: holds %zu cases %s*, expected %zu\n", path, n, start, count);
    st_close(&tensors);
    json_object_put(cases);
    return failed;
}

static inline int run_suite(const char *suite, const char *prefix, size_t count, void (*test)(void **))
{
    return run_some(suite, prefix, count, NULL, test);
}

#endif
