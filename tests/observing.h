/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Shared by tests of the public functions: short ways to make objects and to say what a call must answer. */
#ifndef QOBS_TEST_OBSERVING_H
#define QOBS_TEST_OBSERVING_H
#include "qobs/qobs.h"
#include "unit.h"

/* The error of the last call. */
static qobs_error error;

#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        if ((call) != QOBS_OK)                                                                                         \
            fail_msg("%s: %s", #call, error.message);                                                                  \
        assert_int_equal(error.status, QOBS_OK);                                                                       \
        assert_string_equal(error.message, "");                                                                        \
    } while (0)

/* The call fails with that status, and its message has every one of the words between the bars. */
static inline void expect_refused(int got, int status, const char *words, const char *file, int line)
{
    char text[256], *rest = text;
    snprintf(text, sizeof text, "%s", words);
    bool good = got == status && error.status == status && error.message[0] != '\0';
    for (char *word; good && (word = strtok_r(rest, "|", &rest));)
        good = strstr(error.message, word) != NULL;
    if (!good) {
        print_error("status %d, expected %d with '%s': %s\n", got, status, words, error.message);
        _fail(file, line);
    }
}
#define assert_refused(call, status, words) expect_refused((call), (status), (words), __FILE__, __LINE__)

static inline qobs_config *make_config(const char *preset, const char *settings, const qobs_runtime *runtime)
{
    qobs_config *config = NULL;
    assert_ok(qobs_config_create(&config, preset, runtime, &error));
    assert_ok(qobs_config_set_all(config, settings, &error));
    return config;
}

static inline qobs_observer *make(const char *preset, const char *settings)
{
    qobs_config *config = make_config(preset, settings, NULL);
    qobs_observer *o = NULL;
    assert_ok(qobs_observer_create(&o, config, NULL, &error));
    qobs_config_destroy(config);
    return o;
}

static inline qobs_tensor tensor_of(qobs_dtype dtype, int ndim, const int64_t *shape, const void *data)
{
    return (qobs_tensor){
        .struct_size = sizeof(qobs_tensor), .data = data, .dtype = dtype, .ndim = ndim, .shape = shape};
}
#define tensor(dtype, data, ...)                                                                                       \
    tensor_of(dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__}, data)

#define F32(...) ((const float[]){__VA_ARGS__})

/* Observes a matrix of f32 with that many rows. */
static inline int observe(qobs_observer *o, int64_t rows, int64_t columns, const float *data)
{
    const qobs_tensor value = tensor(QOBS_F32, data, rows, columns);
    return qobs_observer_observe(o, &value, NULL, &error);
}

static inline void expect_result(const qobs_observer *o, const char *name, size_t n, const float *expected,
                                 const char *file, int line)
{
    float got[8];
    if (qobs_observer_read(o, name, got, n * sizeof *got, &error) != QOBS_OK ||
        memcmp(got, expected, n * sizeof *got) != 0) {
        print_error("%s: %s\n", name, error.message);
        for (size_t i = 0; error.status == QOBS_OK && i < n; i++)
            print_error("[%zu] is %.9g, expected %.9g\n", i, (double)got[i], (double)expected[i]);
        _fail(file, line);
    }
}
#define assert_result(o, name, ...)                                                                                    \
    expect_result(o, name, sizeof(F32(__VA_ARGS__)) / sizeof(float), F32(__VA_ARGS__), __FILE__, __LINE__)

static inline qobs_counts counts_of(const qobs_observer *o)
{
    qobs_counts counts = {.struct_size = sizeof counts};
    assert_ok(qobs_observer_counts(o, &counts, &error));
    return counts;
}

/* The next number of a sequence that is about normal. */
static inline float normal_like(uint32_t *state)
{
    float sum = 0;
    for (int k = 0; k < 4; k++) {
        *state = *state * 1664525 + 1013904223;
        sum += (float)(int32_t)*state * 0x1p-31f;
    }
    return sum;
}

/* The saved state of an observer, to be freed. */
static inline unsigned char *saved_state(const qobs_observer *o, size_t *size)
{
    *size = qobs_observer_save_size(o);
    unsigned char *bytes = malloc(*size);
    assert_non_null(bytes);
    assert_ok(qobs_observer_save(o, bytes, *size, &error));
    return bytes;
}

#endif
