/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's and Model-Optimizer's searches for scales: the same for any threads and strides, kept, merged and refused. */
#include "observing.h"
#include "repeats.h"

#include <pthread.h>

static const struct {
    const char *preset, *settings;
} searches[] = {
    {"quark.PerTensorPowOf2MinMSEObserver", "dtype=uint8;symmetric=false"},
    {"quark.PerChannelPowOf2MinMSEObserver", "dtype=int8;ch_axis=0"},
    {"quark.PerChannelPowOf2MinMSEObserver", "dtype=int32;ch_axis=-1"},
    {"quark.PerBlockMXDiffsObserver", "dtype=fp4;ch_axis=-1;group_size=32;scope=3"},
    {"quark.PerBlockMXDiffsObserver", "dtype=fp8_e5m2;ch_axis=0;group_size=7"},
    {"modelopt.MseCalibrator", "num_bits=4"},
    {"modelopt.MseCalibrator", "num_bits=[4, 3];axis=0"},
    {"modelopt.MseCalibrator", "num_bits=6;axis=-1;narrow_range=true"},
    {"modelopt.MseCalibrator", "num_bits=4;axis=0;hessian_block_size=64"},
    {"modelopt.MseCalibrator", "num_bits=[4, 3];hessian_block_size=128"},
    {"modelopt.NVFP4MSECalibrator", "block_size=16"},
    {"modelopt.NVFP4MSECalibrator", "block_size=32;hessian_block_size=16"},
};
enum { SEARCHES = sizeof searches / sizeof *searches, MOST_ROWS = 96, COLUMNS = 1024 };

static float values[2][MOST_ROWS * COLUMNS], transposed[MOST_ROWS * COLUMNS];
static int64_t rows; /* of a case */

static void make_values(void)
{
    uint32_t state = 1;
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < MOST_ROWS * COLUMNS; i++) {
            const float sum = normal_like(&state);
            values[b][i] = sum * sum * sum * (float)(1 + i % 7);
        }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < COLUMNS; j++)
            transposed[j * rows + i] = values[0][i * COLUMNS + j];
}

/* Activations, if the search wants them. They are numbers also if values are not. */
static void observe_activations(qobs_observer *o, size_t search)
{
    const qobs_tensor activations = tensor(QOBS_F32, values[1], rows, COLUMNS);
    if (strstr(searches[search].settings, "hessian"))
        assert_ok(qobs_observer_observe_importance(o, &activations, &error));
}

static qobs_observer *make_search(size_t search)
{
    qobs_observer *o = make(searches[search].preset, searches[search].settings);
    observe_activations(o, search);
    return o;
}

/* ---- Threads and strides ----------------------------------------------------------------------------------------- */

struct crew {
    void (*run)(void *, size_t);
    void *argument;
    size_t count, next;
    pthread_mutex_t lock;
};

static void *work(void *argument)
{
    struct crew *c = argument;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        const size_t index = c->next++;
        pthread_mutex_unlock(&c->lock);
        if (index >= c->count)
            return NULL;
        c->run(c->argument, index);
    }
}

static size_t crew_size;

static void crew_for(void *context, void (*run)(void *, size_t), void *argument, size_t count)
{
    struct crew crew = {.run = run, .argument = argument, .count = count, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[8];
    for (size_t i = 0; i < crew_size; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &crew), 0);
    for (size_t i = 0; i < crew_size; i++)
        pthread_join(threads[i], NULL);
}

enum { MOST_RESULTS = 1 << 21 };

/* All results one after the other, to be freed. */
static unsigned char *all_results(const qobs_observer *o, size_t *size)
{
    unsigned char *bytes = calloc(1, MOST_RESULTS);
    *size = 0;
    for (size_t i = 0; i < qobs_observer_result_count(o); i++) {
        qobs_result result = {.struct_size = sizeof result};
        assert_ok(qobs_observer_result_info(o, i, &result, &error));
        assert_true(*size + result.size < MOST_RESULTS);
        assert_ok(qobs_observer_read(o, result.name, bytes + *size, result.size, &error));
        *size += result.size;
    }
    assert_true(*size > 0);
    return bytes;
}

static unsigned char *results_of(size_t search, const char *more_settings, size_t threads, const char *isa,
                                 bool strided, size_t *size)
{
    char settings[200];
    snprintf(settings, sizeof settings, "%s%s", searches[search].settings, more_settings);
    const int64_t shape[2] = {rows, COLUMNS}, strides[2] = {4, 4 * rows};
    const qobs_executor executor = {.struct_size = sizeof executor, .threads = threads, .parallel_for = crew_for};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = threads > 1 ? &executor : NULL};
    qobs_tensor value = tensor_of(QOBS_F32, 2, shape, values[0]);
    if (strided) {
        value.data = transposed;
        value.strides = strides;
    }
    crew_size = threads;
    assert_ok(qobs_isa_select(isa, &error));
    qobs_config *config = make_config(searches[search].preset, settings, NULL);
    qobs_observer *o;
    assert_ok(qobs_observer_create(&o, config, &runtime, &error));
    observe_activations(o, search);
    assert_ok(qobs_observer_observe(o, &value, NULL, &error));
    unsigned char *bytes = all_results(o, size);
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
    assert_ok(qobs_isa_select(NULL, &error));
    return bytes;
}

static void test_same_bits(void **state)
{
    for (size_t i = 0; i < SEARCHES; i++) {
        size_t size, other_size;
        unsigned char *bytes = results_of(i, "", 1, "scalar", false, &size);
        for (int variant = 0; variant < 4; variant++) {
            const size_t threads[] = {1, 2, 7, 1};
            if (variant == 1 && !repeats(0, 1))
                continue;
            unsigned char *others = results_of(i, "", threads[variant], NULL, variant == 3, &other_size);
            if (size != other_size || memcmp(bytes, others, size) != 0)
                fail_msg("%s with %s, variant %d", searches[i].preset, searches[i].settings, variant);
            free(others);
        }
        free(bytes);
    }
}

/* NaN of many payloads: the instruction set must not decide which of them are left. */
static void test_same_nan(void **state)
{
    static float kept[MOST_ROWS * COLUMNS];
    memcpy(kept, values[0], sizeof kept);
    for (uint32_t i = 0; i < MOST_ROWS * COLUMNS; i += 1 + i % 11) {
        const uint32_t bits = 0x7fc00000 | (i * 2654435761U & 0x803fffff);
        memcpy(&values[0][i], &bits, sizeof bits);
    }
    for (size_t i = 0; i < SEARCHES; i++) {
        size_t size, other_size;
        unsigned char *bytes = results_of(i, ";nonfinite=propagate", 1, "scalar", false, &size);
        for (size_t isa = 0; isa < qobs_isa_count(); isa++) {
            if (!qobs_isa_usable(isa) || strcmp(qobs_isa_name(isa), "scalar") == 0)
                continue;
            unsigned char *others =
                results_of(i, ";nonfinite=propagate", 1 + isa, qobs_isa_name(isa), false, &other_size);
            if (size != other_size || memcmp(bytes, others, size) != 0)
                fail_msg("%s with %s, %s", searches[i].preset, searches[i].settings, qobs_isa_name(isa));
            free(others);
        }
        free(bytes);
    }
    memcpy(values[0], kept, sizeof kept);
}

/* ---- Saved and loaded -------------------------------------------------------------------------------------------- */

static void observe_batch(qobs_observer *o, int batch) { assert_ok(observe(o, rows, COLUMNS, values[batch])); }

static bool takes_two(size_t search) { return strcmp(searches[search].preset, "modelopt.NVFP4MSECalibrator") != 0; }

static qobs_observer *reload(const qobs_observer *o)
{
    size_t size;
    unsigned char *bytes = saved_state(o, &size);
    qobs_observer *copy;
    assert_ok(qobs_observer_load(&copy, bytes, size, NULL, &error));
    for (size_t cut = 0; cut < size; cut += size / 97 + 1) { /* no part of it is one */
        qobs_observer *none;
        assert_refused(qobs_observer_load(&none, bytes, cut, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "buffer");
    }
    free(bytes);
    return copy;
}

static void expect_same(const qobs_observer *a, const qobs_observer *b)
{
    size_t size, other_size;
    unsigned char *bytes = all_results(a, &size), *others = all_results(b, &other_size);
    assert_int_equal(size, other_size);
    assert_memory_equal(bytes, others, size);
    free(bytes);
    free(others);
}

/* Saved between two batches, nothing is lost. */
static void test_reloaded(void **state)
{
    for (size_t i = 0; i < SEARCHES; i++) {
        qobs_observer *o = make_search(i);
        observe_batch(o, 0);
        qobs_observer *copy = reload(o);
        expect_same(o, copy);
        if (takes_two(i)) {
            observe_batch(o, 1);
            observe_batch(copy, 1);
            expect_same(o, copy);
        }
        qobs_observer_destroy(o);
        qobs_observer_destroy(copy);
    }
}

/* The reference amax and the error weights are saved if they are set before the first batch. */
static void test_given(void **state)
{
    qobs_observer *o = make("modelopt.MseCalibrator", "num_bits=4;axis=0"),
                  *plain = make("modelopt.MseCalibrator", "num_bits=4;axis=0");
    float amax[MOST_ROWS], weight[COLUMNS], found[MOST_ROWS], other[MOST_ROWS];
    for (int i = 0; i < rows; i++)
        amax[i] = (float)(1 + i % 3);
    for (int j = 0; j < COLUMNS; j++)
        weight[j] = (float)(j % 5);
    const qobs_tensor flat = tensor(QOBS_F32, amax, rows), given = tensor(QOBS_F32, amax, rows, 1),
                      weights = tensor(QOBS_F32, weight, COLUMNS);
    assert_ok(qobs_observer_set_reference_amax(o, &flat, &error));
    assert_refused(observe(o, rows, COLUMNS, values[0]), QOBS_ERROR_INVALID_ARGUMENT,
                   repeats(0, 1) ? "amax|96" : "amax|16");
    assert_ok(qobs_observer_set_reference_amax(o, &given, &error));
    assert_ok(qobs_observer_set_error_weights(o, &weights, &error));
    qobs_observer *copy = reload(o);
    observe_batch(o, 0);
    observe_batch(copy, 0);
    observe_batch(plain, 0);
    expect_same(o, copy);
    assert_ok(qobs_observer_read(o, "amax", found, sizeof *found * (size_t)rows, &error));
    assert_ok(qobs_observer_read(plain, "amax", other, sizeof *other * (size_t)rows, &error));
    assert_memory_not_equal(found, other, sizeof *found * (size_t)rows);
    for (int i = 0; i < rows; i++)
        assert_true(found[i] >= amax[i] * 0.25f && found[i] <= amax[i] * 4);
    assert_refused(qobs_observer_set_reference_amax(o, &given, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "amax|before the first");
    qobs_observer_destroy(o);
    qobs_observer_destroy(copy);
    qobs_observer_destroy(plain);
}

/* ---- Merged ------------------------------------------------------------------------------------------------------ */

/* Batches of different observers count as if one had seen them all, where there is a sum; and an empty observer becomes
 * like another. */
static void test_merged(void **state)
{
    for (size_t i = 0; i < SEARCHES; i++) {
        qobs_observer *a = make_search(i), *b = make_search(i);
        qobs_observer *empty = make(searches[i].preset, searches[i].settings);
        observe_batch(a, 0);
        observe_batch(b, 0);
        assert_ok(qobs_observer_merge(empty, (const qobs_observer *const *)&a, 1, &error));
        expect_same(empty, a);
        if (strcmp(searches[i].preset, "modelopt.MseCalibrator") == 0) {
            qobs_observer *both = make_search(i), *strange = make_search(i);
            observe_batch(both, 0);
            observe_batch(both, 0);
            observe_activations(both, i);
            assert_ok(qobs_observer_merge(a, (const qobs_observer *const *)&b, 1, &error));
            expect_same(a, both);
            observe_batch(strange, 1);
            assert_refused(qobs_observer_merge(a, (const qobs_observer *const *)&strange, 1, &error),
                           QOBS_ERROR_INVALID_ARGUMENT, "others[0]|amax");
            expect_same(a, both);
            qobs_observer_destroy(both);
            qobs_observer_destroy(strange);
        }
        qobs_observer_destroy(a);
        qobs_observer_destroy(b);
        qobs_observer_destroy(empty);
    }
}

/* A block's choice keeps its exponent under a larger magnitude, as far as `scope` goes. */
static void test_merged_steps(void **state)
{
    const char *settings = "dtype=fp4;ch_axis=-1;group_size=4;scope=2";
    qobs_observer *a = make("quark.PerBlockMXDiffsObserver", settings),
                  *b = make("quark.PerBlockMXDiffsObserver", settings);
    assert_ok(observe(a, 2, 4, F32(6, 0.5f, 0.5f, 0.5f, 6, 0.5f, 0.5f, 0.5f)));
    assert_result(a, "init_scale", 2, 2);
    assert_result(a, "scale", 1, 1);
    assert_ok(observe(b, 2, 4, F32(12, 6, 2, 0, 100, 50, 0, 0)));
    assert_ok(qobs_observer_merge(a, (const qobs_observer *const *)&b, 1, &error));
    assert_result(a, "amax", 12, 100);
    assert_result(a, "init_scale", 4, 32);
    assert_result(a, "scale", 1, 8); /* 4 / 2^2, 32 / 2^2 */
    qobs_observer_destroy(a);
    qobs_observer_destroy(b);
}

/* ---- Refused ----------------------------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    qobs_observer *o = make("modelopt.NVFP4MSECalibrator", "");
    const qobs_tensor two = tensor(QOBS_F32, F32(1, 2), 2), negative = tensor(QOBS_F32, F32(-1), 1),
                      one = tensor(QOBS_F32, F32(7), 1);
    assert_refused(qobs_observer_set_reference_amax(o, &two, &error), QOBS_ERROR_INVALID_ARGUMENT, "amax|2 elements");
    assert_refused(qobs_observer_set_reference_amax(o, &negative, &error), QOBS_ERROR_INVALID_ARGUMENT, "amax|-1");
    assert_ok(qobs_observer_set_reference_amax(o, &one, &error));
    assert_refused(observe(o, 2, 24, values[0]), QOBS_ERROR_INVALID_ARGUMENT, "block_size|16|24");
    assert_ok(observe(o, 2, 16, values[0]));
    assert_refused(observe(o, 2, 16, values[0]), QOBS_ERROR_INVALID_ARGUMENT, "reset");
    qobs_observer_reset(o);
    assert_ok(observe(o, 2, 16, values[0]));
    qobs_observer_destroy(o);
    o = make("modelopt.MseCalibrator", "unsigned=true");
    assert_refused(observe(o, 1, 2, F32(1, -1)), QOBS_ERROR_INVALID_ARGUMENT, "negative|unsigned");
    assert_int_equal(counts_of(o).batches, 0);
    assert_ok(observe(o, 1, 2, F32(1, 2)));
    qobs_observer_destroy(o);
    o = make("llmc.mse", "");
    assert_refused(qobs_observer_set_reference_amax(o, &one, &error), QOBS_ERROR_INVALID_ARGUMENT, "llmc.mse|amax");
    qobs_observer_destroy(o);
    qobs_config *config = make_config("modelopt.MseCalibrator", "step_size=0.001", NULL);
    assert_refused(qobs_config_check(config, &error), QOBS_ERROR_INVALID_ARGUMENT, "step_size|3751|512");
    assert_ok(qobs_config_set(config, "start_multiplier", "5", &error));
    assert_refused(qobs_config_check(config, &error), QOBS_ERROR_INVALID_ARGUMENT, "stop_multiplier|5");
    qobs_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_same_nan), cmocka_unit_test(test_reloaded),
        cmocka_unit_test(test_given),     cmocka_unit_test(test_merged),   cmocka_unit_test(test_merged_steps),
        cmocka_unit_test(test_refused),
    };
    rows = repeats(16, MOST_ROWS);
    make_values();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
