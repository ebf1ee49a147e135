/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Tensors out of the ordinary: too large to be true, empty, and with strides that are 0, negative or meaningless. */
#include "every_preset.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"
#include "calls.h"

enum { ROWS = 24, COLUMNS = 96 };

static float data[ROWS * COLUMNS];

/* ---- Too large --------------------------------------------------------------------------------------------------- */

/* Every function that takes a tensor refuses `t`, with those words. */
static void expect_all_refuse(const qobs_tensor *t, const char *words)
{
    static float scratch[4];
    static uint64_t counts[4];
    qobs_config *llmc = make_config("llmc.mse", "", NULL), *quark = make_config("quark.PerTensorMSEObserver", "", NULL);
    qobs_observer *o = make("llmc.imatrix_mse", ""), *modelopt = make("modelopt.NVFP4MSECalibrator", ""),
                  *weighted = make("modelopt.NVFP4MSECalibrator", "hessian_block_size=16");
    qobs_plan *plan = NULL;
    const qobs_histogram_options bins = {.struct_size = sizeof bins, .count = 2, .max = 1};
    const qobs_tensor one = tensor(QOBS_F32, data, 1), four = tensor(QOBS_F32, data, 2, 2);
    const int status = QOBS_ERROR_INVALID_ARGUMENT;
    assert_refused(qobs_observer_observe(o, t, NULL, &error), status, words);
    assert_refused(qobs_observer_observe_importance(o, t, &error), status, words);
    assert_refused(qobs_observer_record_tokens(o, t, &error), status, words);
    assert_refused(call_update_min_max(o, t, NULL, scratch, scratch, 4, &error), status, words);
    assert_refused(call_update_qparams(o, t, NULL, scratch, 4, NULL, 0, &error), status, words);
    assert_refused(qobs_observer_set_reference_amax(modelopt, t, &error), status, words);
    assert_refused(qobs_observer_set_error_weights(modelopt, t, &error), status, words);
    assert_refused(qobs_observer_set_hessian(weighted, t, &error), status, words);
    assert_refused(qobs_plan_create(&plan, llmc, t, NULL, NULL, &error), status, words);
    assert_refused(call_minmax(llmc, t, NULL, scratch, scratch, NULL, NULL, &error), status, words);
    assert_refused(call_global_minmax(llmc, t, scratch, scratch, NULL, NULL, &error), status, words);
    assert_refused(call_histogram(llmc, t, NULL, &bins, counts, NULL, NULL, NULL, NULL, &error), status, words);
    assert_refused(call_search(llmc, t, NULL, NULL, NULL, scratch, scratch, NULL, NULL, NULL, NULL, &error), status,
                   words);
    assert_refused(call_range_by_mse(quark, t, &one, 1, 0, scratch, scratch, NULL, &error), status, words);
    assert_refused(call_range_by_mse(quark, &one, t, 1, 0, scratch, scratch, NULL, &error), status, words);
    assert_refused(call_fake_quantize(llmc, NULL, t, NULL, &one, NULL, NULL, scratch, NULL, NULL, &error), status,
                   words);
    assert_refused(call_fake_quantize(llmc, NULL, &four, NULL, t, NULL, NULL, scratch, NULL, NULL, &error), status,
                   words);
    assert_refused(call_fake_quantize(llmc, NULL, &four, NULL, &one, t, NULL, scratch, NULL, NULL, &error), status,
                   words);
    assert_int_equal(counts_of(o).batches, 0);
    assert_null(plan);
    qobs_observer_destroy(o);
    qobs_observer_destroy(modelopt);
    qobs_observer_destroy(weighted);
    qobs_config_destroy(llmc);
    qobs_config_destroy(quark);
}

static void test_too_large(void **state)
{
    static const int64_t zeros[QOBS_MAX_NDIM];
    static const struct {
        int ndim;
        int64_t shape[QOBS_MAX_NDIM];
    } shapes[] = {
        {1, {INT64_MAX}},
        {1, {(INT64_C(1) << 48) + 1}},
        {2, {INT64_C(1) << 32, INT64_C(1) << 32}}, /* 2^64: nothing, if it were allowed to wrap around */
        {2, {INT64_C(1) << 61, 1}},                /* 2^64 bytes of state */
        {3, {INT64_C(1) << 32, 1, INT64_C(1) << 31}},
        {8, {1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int strides = 0; strides < 2; strides++) { /* of 0: all of it would be there */
            qobs_tensor t = tensor_of(QOBS_F32, shapes[i].ndim, shapes[i].shape, data);
            t.strides = strides ? zeros : NULL;
            expect_all_refuse(&t, "2^48 elements");
        }
    static const int64_t two[] = {2, 2}, far[][2] = {{INT64_MAX, 4},
                                                     {4, INT64_MIN},
                                                     {INT64_MIN, INT64_MIN},
                                                     {INT64_C(1) << 61, 4},
                                                     {-(INT64_C(1) << 60) - 1, -(INT64_C(1) << 60)}};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        qobs_tensor t = tensor_of(QOBS_F32, 2, two, data);
        t.strides = far[i];
        expect_all_refuse(&t, "strides reach further than 2^61 bytes");
    }
    /* state in proportion to a dimension of a tensor without elements */
    const qobs_tensor empty = tensor(QOBS_F32, NULL, INT64_C(1) << 61, 0);
    const qobs_histogram_options bins = {.struct_size = sizeof bins, .count = 2, .max = 1};
    float min, max;
    uint64_t counts[2];
    qobs_plan *plan = NULL;
    qobs_config *config = make_config("llmc.mse", "base_name=weight;strategy=channel", NULL);
    assert_refused(qobs_plan_create(&plan, config, &empty, NULL, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "qparams|2^48");
    assert_refused(call_minmax(config, &empty, NULL, &min, &max, NULL, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "qparams|2^48");
    assert_refused(call_histogram(config, &empty, NULL, &bins, counts, NULL, NULL, NULL, NULL, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "qparams|2^48");
    qobs_config_destroy(config);
}

/* Memory up to a point; notes the most that was asked for. */
static void *allocate_some(void *context, size_t size)
{
    size_t *most = context;
    *most = size > *most ? size : *most;
    return size < (size_t)1 << 30 ? malloc(size) : NULL;
}

static void release_some(void *context, void *memory, size_t size)
{
    (void)context, (void)size;
    free(memory);
}

/* Bounded, but more than there is: every kind of state says so, and stays as it was. */
static void test_more_than_memory(void **state)
{
    static const int64_t zeros[2];
    size_t most = 0;
    const qobs_allocator allocator = {sizeof allocator, allocate_some, release_some, &most};
    const qobs_runtime runtime = {sizeof runtime, &allocator, NULL};
    for (size_t i = 0; i < EVERY_PRESET; i++) {
        const struct every_preset *p = &every_preset[i];
        const bool rows = strstr(p->settings, "ch_axis=0") || strstr(p->settings, "axis=0") ||
                          strstr(p->preset, "torch.MovingAveragePer");
        const bool columns = strstr(p->settings, "ch_axis=1") && !strstr(p->settings, "group_size");
        if (!rows && !columns && strcmp(p->preset, "llmc.imatrix_mse") != 0)
            continue;
        const int64_t shape[] = {columns ? 1 : INT64_C(1) << 47, columns ? INT64_C(1) << 47 : 1};
        const int64_t weight[] = {INT64_C(1) << 43, 16};
        qobs_tensor t = tensor_of(QOBS_F32, 2, rows || columns ? shape : weight, data);
        t.strides = zeros;
        qobs_config *config = make_config(p->preset, p->settings, NULL);
        qobs_observer *o = NULL;
        assert_ok(qobs_observer_create(&o, config, &runtime, &error));
        qobs_config_destroy(config);
        most = 0;
        assert_refused(qobs_observer_observe(o, &t, NULL, &error), QOBS_ERROR_OUT_OF_MEMORY, "memory");
        assert_int_equal(counts_of(o).batches, 0);
        assert_true(most >= (size_t)1 << 43); /* and did not wrap around */
        if (weighs_columns(p)) {
            const int64_t wide[] = {1, INT64_C(1) << 47};
            t.shape = wide;
            assert_refused(qobs_observer_observe_importance(o, &t, &error), QOBS_ERROR_OUT_OF_MEMORY, "memory");
        }
        assert_ok(observe(o, ROWS, COLUMNS, data));
        qobs_observer_destroy(o);
    }
}

/* ---- Empty
 * --------------------------------------------------------------------------------------------------------------------
 */

static void test_empty(void **state)
{
    const qobs_tensor empty[] = {tensor(QOBS_F32, NULL, 0, COLUMNS), tensor(QOBS_F32, NULL, ROWS, 0),
                                 tensor(QOBS_F32, NULL, 0), tensor(QOBS_F32, NULL, 0, INT64_MAX),
                                 tensor(QOBS_F32, data, INT64_MAX, INT64_MAX, 0)};
    for (size_t i = 0; i < EVERY_PRESET; i++) {
        qobs_observer *o = make(every_preset[i].preset, every_preset[i].settings);
        for (int after = 0; after < 2; after++) {
            size_t size, size_after;
            unsigned char *before = saved_state(o, &size);
            for (size_t k = 0; k < sizeof empty / sizeof *empty; k++)
                assert_ok(qobs_observer_observe(o, &empty[k], NULL, &error));
            unsigned char *bytes = saved_state(o, &size_after);
            assert_int_equal(size, size_after);
            assert_memory_equal(before, bytes, size);
            free(before);
            free(bytes);
            if (after == 0)
                assert_ok(observe(o, ROWS, COLUMNS, data));
        }
        qobs_observer_destroy(o);
    }
    const qobs_histogram_options bins = {.struct_size = sizeof bins, .count = 2, .max = 1};
    const qobs_tensor one = tensor(QOBS_F32, data, 1);
    uint64_t counts[2] = {7, 7};
    float min = 5, max = 6;
    qobs_config *config = make_config("llmc.minmax", "base_name=input", NULL);
    assert_refused(call_minmax(config, &empty[0], NULL, &min, &max, NULL, NULL, &error), QOBS_ERROR_NO_DATA,
                   "no elements");
    assert_true(min == 5 && max == 6);
    assert_ok(call_histogram(config, &empty[0], NULL, &bins, counts, NULL, NULL, NULL, NULL, &error));
    assert_true(counts[0] == 0 && counts[1] == 0);
    assert_ok(call_fake_quantize(config, NULL, &empty[0], NULL, &one, NULL, NULL, NULL, NULL, NULL, &error));
    qobs_config_destroy(config);
}

/* ---- Strides ----------------------------------------------------------------------------------------------------- */

/* A view of `data` with such strides gives the state and the results of a copy without gaps. */
static void expect_as_copy(const struct every_preset *p, const int64_t *strides, size_t first)
{
    static float copy[ROWS * COLUMNS];
    static const int64_t shape[] = {ROWS, COLUMNS};
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        copy[i] = data[(int64_t)first + (i / COLUMNS * strides[0] + i % COLUMNS * strides[1]) / (int64_t)sizeof *data];
    qobs_tensor view = tensor_of(QOBS_F32, 2, shape, data + first);
    view.strides = strides;
    qobs_observer *a = make(p->preset, p->settings), *b = make(p->preset, p->settings);
    assert_ok(qobs_observer_observe(a, &view, NULL, &error));
    assert_ok(observe(b, ROWS, COLUMNS, copy));
    size_t size, other_size;
    unsigned char *bytes = saved_state(a, &size), *others = saved_state(b, &other_size);
    if (size != other_size || memcmp(bytes, others, size) != 0)
        fail_msg("%s, %s: strides %lld, %lld give something else than a copy", p->preset, p->settings,
                 (long long)strides[0], (long long)strides[1]);
    free(bytes);
    free(others);
    qobs_observer_destroy(a);
    qobs_observer_destroy(b);
}

static void test_strides(void **state)
{
    enum { E = sizeof *data };
    static const struct {
        int64_t strides[2];
        size_t first;
    } views[] = {
        {{-COLUMNS * E, E}, (ROWS - 1) * COLUMNS}, /* last row first */
        {{COLUMNS * E, -E}, COLUMNS - 1},          /* last column first */
        {{-COLUMNS * E, -E}, ROWS * COLUMNS - 1},  /* both */
        {{0, E}, 5},                               /* the same row again and again */
        {{E, 0}, 7},                               /* every row one number */
        {{0, 0}, 11},                              /* one number */
        {{E, ROWS * E}, 0},                        /* transposed */
        {{-E, ROWS * E}, ROWS - 1},                /* and upside down */
        {{E, E}, 3},                               /* rows that overlap */
        {{-E, 2 * E}, ROWS},
    };
    fill_matrix(data, ROWS * COLUMNS, 3);
    for (size_t i = 0; i < EVERY_PRESET; i++)
        for (size_t k = 0; k < sizeof views / sizeof *views; k++)
            expect_as_copy(&every_preset[i], views[k].strides, views[k].first);
}

/* The stride of a dimension of one is never taken. */
static void test_unused_strides(void **state)
{
    static const int64_t shapes[][2] = {{1, COLUMNS}, {COLUMNS, 1}, {1, 1}};
    static const int64_t strides[][2] = {{INT64_MIN, 4}, {4, INT64_MAX}, {INT64_MAX, INT64_MIN}};
    qobs_config *config = make_config("quark.PerTensorMinMaxObserver", "", NULL);
    for (size_t i = 0; i < 3; i++) {
        qobs_tensor t = tensor_of(QOBS_F32, 2, shapes[i], data);
        qobs_observer *o = make("quark.PerTensorMinMaxObserver", "");
        float min, max, plain_min, plain_max;
        assert_ok(call_minmax(config, &t, NULL, &plain_min, &plain_max, NULL, NULL, &error));
        t.strides = strides[i];
        assert_ok(call_minmax(config, &t, NULL, &min, &max, NULL, NULL, &error));
        assert_true(min == plain_min && max == plain_max);
        assert_ok(qobs_observer_observe(o, &t, NULL, &error));
        assert_int_equal(counts_of(o).elements, shapes[i][0] * shapes[i][1]);
        qobs_observer_destroy(o);
    }
    qobs_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_too_large), cmocka_unit_test(test_more_than_memory), cmocka_unit_test(test_empty),
        cmocka_unit_test(test_strides),   cmocka_unit_test(test_unused_strides),
    };
    fill_matrix(data, ROWS * COLUMNS, 3);
    return cmocka_run_group_tests_name("tensors", tests, NULL, NULL) != 0;
}
