/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Several threads: different observers at the same time, one that all read, and the choice of instruction set under
 * them. No locks here either; the thread sanitizer runs this, too. */
#include <pthread.h>
#include <stdatomic.h>

#include "every_preset.h"
#include "threads.h"

enum { THREADS = 6, ROWS = 24, COLUMNS = 96, LARGE = 2 << 17 };

static float batches[2][ROWS * COLUMNS];
static float large[LARGE];
static qobs_config *configs[EVERY_PRESET];
static unsigned char *expected[EVERY_PRESET];
static size_t expected_size[EVERY_PRESET];

/* The first thing that went wrong in any thread. */
static atomic_int wrong;
static char complaint[512];

static void complain(const char *what, const struct every_preset *p, const qobs_error *e)
{
    if (atomic_exchange(&wrong, 1) == 0)
        snprintf(complaint, sizeof complaint, "%s: %s, %s: %s", what, p->preset, p->settings, e->message);
}

/* Batches into a new observer of a configuration that all threads share. */
static qobs_observer *make_observed(size_t i, const qobs_runtime *runtime)
{
    const struct every_preset *p = &every_preset[i];
    const int64_t shape[] = {ROWS, COLUMNS};
    qobs_observer *o = NULL;
    qobs_error e = {0};
    int status = qobs_observer_create(&o, configs[i], runtime, &e);
    for (int b = 0; b < 2 && status == QOBS_OK; b++) {
        const qobs_tensor value = tensor_of(QOBS_F32, 2, shape, batches[b]);
        if (weighs_columns(p))
            status = qobs_observer_observe_importance(o, &value, &e);
        if (status == QOBS_OK && !(b == 1 && strcmp(p->preset, "modelopt.NVFP4MSECalibrator") == 0))
            status = qobs_observer_observe(o, &value, NULL, &e);
    }
    if (status != QOBS_OK)
        complain("observe", p, &e);
    return o;
}

static void compare(const char *what, size_t i, const qobs_observer *o)
{
    const size_t size = qobs_observer_save_size(o);
    unsigned char *bytes = malloc(size);
    qobs_error e = {0};
    if (!bytes || qobs_observer_save(o, bytes, size, &e) != QOBS_OK || size != expected_size[i] ||
        memcmp(bytes, expected[i], size) != 0)
        complain(what, &every_preset[i], &e);
    free(bytes);
}

static void prepare(void)
{
    fill_matrix(batches[0], ROWS * COLUMNS, 0);
    fill_matrix(batches[1], ROWS * COLUMNS, 1);
    fill_matrix(large, LARGE, 2);
    for (size_t i = 0; i < EVERY_PRESET; i++) {
        configs[i] = make_config(every_preset[i].preset, every_preset[i].settings, NULL);
        qobs_observer *o = make_observed(i, NULL);
        expected[i] = saved_state(o, &expected_size[i]);
        qobs_observer_destroy(o);
    }
}

static void tidy(void)
{
    for (size_t i = 0; i < EVERY_PRESET; i++) {
        qobs_config_destroy(configs[i]);
        free(expected[i]);
    }
}

/* One body on all threads, which begin together. */
static pthread_barrier_t begin;
static void *(*body)(void *);

static void *wait_and_run(void *argument)
{
    pthread_barrier_wait(&begin);
    return body(argument);
}

static void run(void *(*what)(void *), void *arguments[THREADS])
{
    pthread_t threads[THREADS];
    atomic_store(&wrong, 0);
    body = what;
    assert_int_equal(pthread_barrier_init(&begin, NULL, THREADS), 0);
    for (size_t t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, wait_and_run, arguments[t]), 0);
    for (size_t t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    pthread_barrier_destroy(&begin);
    if (atomic_load(&wrong))
        fail_msg("%s", complaint);
}

/* ---- Different observers ----------------------------------------------------------------------------------------- */

/* Every preset, in an order of each thread's own, saved, loaded and merged. */
static void *observe_all(void *argument)
{
    const size_t *first = argument;
    for (size_t n = 0; n < EVERY_PRESET; n++) {
        const size_t i = (*first * 7 + n) % EVERY_PRESET;
        qobs_error e = {0};
        qobs_observer *o = make_observed(i, NULL), *loaded = NULL;
        compare("different observers", i, o);
        if (qobs_observer_load(&loaded, expected[i], expected_size[i], NULL, &e) != QOBS_OK)
            complain("load", &every_preset[i], &e);
        else
            compare("loaded", i, loaded);
        qobs_observer_reset(o);
        if (qobs_observer_merge(o, (const qobs_observer *const *)&loaded, 1, &e) != QOBS_OK)
            complain("merge", &every_preset[i], &e);
        qobs_observer_destroy(o);
        qobs_observer_destroy(loaded);
    }
    return NULL;
}

/* Large tensors on executors of their own. */
static void *observe_large(void *argument)
{
    size_t threads = 2;
    const qobs_executor executor = {sizeof executor, threads, parallel_for, &threads};
    const qobs_runtime runtime = {sizeof runtime, NULL, &executor};
    const int64_t shape[] = {LARGE / COLUMNS, COLUMNS};
    const qobs_tensor value = tensor_of(QOBS_F32, 2, shape, large);
    for (size_t i = 0; i < EVERY_PRESET; i++) {
        const struct every_preset *p = &every_preset[i];
        qobs_observer *o = NULL;
        qobs_error e = {0};
        if (strstr(p->preset, "mse") || strstr(p->preset, "MSE") || strstr(p->preset, "Mse")) /* take long */
            continue;
        if (qobs_observer_create(&o, configs[i], &runtime, &e) != QOBS_OK ||
            qobs_observer_observe(o, &value, NULL, &e) != QOBS_OK)
            complain("large", p, &e);
        qobs_observer_destroy(o);
    }
    return NULL;
}

/* Goes through the usable instruction sets over and over. */
static void *change_isa(void *argument)
{
    for (size_t n = 0; n < 2000; n++)
        if (qobs_isa_usable(n % qobs_isa_count()))
            qobs_isa_select(qobs_isa_name(n % qobs_isa_count()), NULL);
    qobs_isa_select(NULL, NULL);
    return NULL;
}

static void *observe_or_change(void *argument)
{
    return *(size_t *)argument == 0 ? change_isa(argument) : observe_all(argument);
}

static void run_numbered(void *(*what)(void *))
{
    size_t numbers[THREADS];
    void *arguments[THREADS];
    for (size_t t = 0; t < THREADS; t++) {
        numbers[t] = t;
        arguments[t] = &numbers[t];
    }
    run(what, arguments);
}

static void test_different_observers(void **state)
{
    run_numbered(observe_all);
    run_numbered(observe_or_change);
    atomic_store(&loops, 0);
    run_numbered(observe_large);
    assert_true(atomic_load(&loops) >= THREADS); /* work was cut */
}

/* ---- One observer that all read ---------------------------------------------------------------------------------- */

/* Everything that takes a const observer. */
static void *read_all(void *argument)
{
    const qobs_observer *const *observers = argument;
    for (size_t i = 0; i < EVERY_PRESET; i++) {
        const struct every_preset *p = &every_preset[i];
        const qobs_observer *o = observers[i];
        qobs_counts counts = {.struct_size = sizeof counts};
        qobs_search_report report = {.struct_size = sizeof report};
        qobs_observer *own = NULL;
        qobs_error e = {0};
        for (size_t k = 0; k < qobs_observer_result_count(o); k++) {
            qobs_result result = {.struct_size = sizeof result};
            if (qobs_observer_result_info(o, k, &result, &e) != QOBS_OK ||
                qobs_observer_result_find(o, result.name, &result, &e) != QOBS_OK)
                complain("result", p, &e);
            void *out = malloc(result.size);
            if (!out || qobs_observer_read(o, result.name, out, result.size, &e) != QOBS_OK)
                complain("read", p, &e);
            free(out);
        }
        if (qobs_observer_counts(o, &counts, &e) != QOBS_OK)
            complain("counts", p, &e);
        qobs_observer_search_report(o, &report, NULL);
        compare("reading", i, o);
        if (qobs_observer_create(&own, configs[i], NULL, &e) != QOBS_OK ||
            qobs_observer_merge(own, &o, 1, &e) != QOBS_OK)
            complain("merge", p, &e);
        qobs_observer_destroy(own);
    }
    return NULL;
}

static void test_one_observer(void **state)
{
    qobs_observer *observers[EVERY_PRESET];
    void *arguments[THREADS];
    for (size_t i = 0; i < EVERY_PRESET; i++)
        observers[i] = make_observed(i, NULL);
    for (size_t t = 0; t < THREADS; t++)
        arguments[t] = observers;
    run(read_all, arguments);
    for (size_t i = 0; i < EVERY_PRESET; i++)
        qobs_observer_destroy(observers[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_different_observers),
        cmocka_unit_test(test_one_observer),
    };
    prepare();
    const int failed = cmocka_run_group_tests_name("concurrency", tests, NULL, NULL);
    tidy();
    return failed != 0;
}
