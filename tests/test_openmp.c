/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The OpenMP adapter: as many threads as it says, each task once, the results of one thread. */
#include "every_preset.h"
#include "qobs/openmp.h"

#include <stdatomic.h>

enum { TASKS = 100, ROWS = 1024, COLUMNS = 256 };

static atomic_int done[TASKS], inside, most_inside;

/* Waits a while for others to come in, so that threads that exist are seen. */
static void note(void *argument, size_t index)
{
    const int wanted = *(const int *)argument, now = atomic_fetch_add(&inside, 1) + 1;
    int most = atomic_load(&most_inside);
    while (now > most && !atomic_compare_exchange_weak(&most_inside, &most, now))
        ;
    for (int i = 0; i < 1000000 && atomic_load(&most_inside) < wanted; i++)
        ;
    atomic_fetch_add(&done[index], 1);
    atomic_fetch_sub(&inside, 1);
}

static void test_tasks(void **state)
{
    for (int threads = 1; threads <= 3; threads++) {
        const qobs_executor executor = qobs_openmp_executor(threads);
        assert_int_equal(executor.struct_size, sizeof executor);
        assert_int_equal(executor.threads, threads);
        atomic_store(&most_inside, 0);
        for (int i = 0; i < TASKS; i++)
            atomic_store(&done[i], 0);
        int wanted = threads;
        executor.parallel_for(executor.context, note, &wanted, TASKS);
        for (int i = 0; i < TASKS; i++)
            assert_int_equal(atomic_load(&done[i]), 1);
        assert_in_range(atomic_load(&most_inside), 1, threads);
        if (threads > 1)
            assert_true(atomic_load(&most_inside) > 1);
        executor.parallel_for(executor.context, note, &wanted, 0);
    }
    assert_true(qobs_openmp_executor(0).threads >= 1);
    assert_int_equal(qobs_openmp_executor(-5).threads, qobs_openmp_executor(0).threads);
}

static void test_results(void **state)
{
    static float data[ROWS * COLUMNS];
    const qobs_executor executor = qobs_openmp_executor(3);
    const qobs_runtime runtime = {sizeof runtime, NULL, &executor};
    fill_matrix(data, ROWS * COLUMNS, 1);
    for (size_t i = 0; i < EVERY_PRESET; i++) {
        qobs_observer *alone = make(every_preset[i].preset, every_preset[i].settings), *o = NULL;
        qobs_config *config = make_config(every_preset[i].preset, every_preset[i].settings, NULL);
        assert_ok(qobs_observer_create(&o, config, &runtime, &error));
        assert_ok(observe(alone, ROWS, COLUMNS, data));
        assert_ok(observe(o, ROWS, COLUMNS, data));
        size_t size, alone_size;
        unsigned char *bytes = saved_state(o, &size), *of_alone = saved_state(alone, &alone_size);
        assert_int_equal(size, alone_size);
        assert_memory_equal(bytes, of_alone, size);
        free(bytes);
        free(of_alone);
        qobs_observer_destroy(alone);
        qobs_observer_destroy(o);
        qobs_config_destroy(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tasks), cmocka_unit_test(test_results)};
    return cmocka_run_group_tests_name("openmp", tests, NULL, NULL) != 0;
}
