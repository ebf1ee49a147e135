/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A Hessian from outside gives what activations with that Hessian give; it is kept, added and refused. */
#include "every_preset.h"

#include <math.h>

enum { ROWS = 12, COLUMNS = 96, TOKENS = 64, ELEMENTS = ROWS * COLUMNS, MOST_BLOCK = 48 };

static const struct {
    const char *preset, *settings;
    int64_t block;
} searches[] = {
    {"modelopt.MseCalibrator", "num_bits=4;hessian_block_size=16", 16},
    {"modelopt.MseCalibrator", "num_bits=4;axis=0;hessian_block_size=24", 24},
    {"modelopt.MseCalibrator", "num_bits=[4, 3];axis=0;hessian_block_size=48", 48},
    {"modelopt.NVFP4MSECalibrator", "hessian_block_size=16", 16},
    {"modelopt.NVFP4MSECalibrator", "block_size=32;hessian_block_size=8", 8},
    {"qobs.local_hessian", "group_size=32;num_bits=4", 32},
    {"qobs.local_hessian", "group_size=16;num_bits=4;hessian_block_size=48", 48},
};
enum { SEARCHES = sizeof searches / sizeof *searches };

static float values[ELEMENTS], activations[TOKENS * COLUMNS];

/* The mean of x x^T over the tokens. Activations are integers, and so are 64 times its entries. */
static qobs_tensor hessian_of(size_t search, qobs_dtype dtype)
{
    static double wide[COLUMNS * MOST_BLOCK];
    static float narrow[COLUMNS * MOST_BLOCK];
    static int64_t shape[3];
    const int64_t b = searches[search].block;
    for (int64_t i = 0; i < COLUMNS * b; i++) {
        const int64_t block = i / (b * b), row = block * b + i / b % b, column = block * b + i % b;
        double sum = 0;
        for (int64_t t = 0; t < TOKENS; t++)
            sum += (double)activations[t * COLUMNS + row] * (double)activations[t * COLUMNS + column];
        wide[i] = sum / TOKENS;
        narrow[i] = (float)wide[i];
        assert_true((double)narrow[i] == wide[i]);
    }
    shape[0] = COLUMNS / b, shape[1] = shape[2] = b;
    return tensor_of(dtype, 3, shape, dtype == QOBS_F64 ? (const void *)wide : narrow);
}

static qobs_observer *make_search(size_t search) { return make(searches[search].preset, searches[search].settings); }

/* An observer with the Hessian, before the first batch. */
static qobs_observer *make_with(size_t search)
{
    qobs_observer *o = make_search(search);
    const qobs_tensor h = hessian_of(search, QOBS_F64);
    assert_ok(qobs_observer_set_hessian(o, &h, &error));
    return o;
}

static void observe_activations(qobs_observer *o)
{
    const qobs_tensor x = tensor(QOBS_F32, activations, TOKENS, COLUMNS);
    assert_ok(qobs_observer_observe_importance(o, &x, &error));
}

static void observe_values(qobs_observer *o) { assert_ok(observe(o, ROWS, COLUMNS, values)); }

/* The results differ in the number of tokens alone, and in sums, which are of one token. */
static void expect_same_results(const qobs_observer *a, const qobs_observer *b, bool but_tokens)
{
    static _Alignas(8) unsigned char got[1 << 16], wanted[1 << 16];
    assert_int_equal(qobs_observer_result_count(a), qobs_observer_result_count(b));
    size_t compared = 0;
    for (size_t i = 0; i < qobs_observer_result_count(a); i++) {
        qobs_result result = {.struct_size = sizeof result};
        assert_ok(qobs_observer_result_info(a, i, &result, &error));
        if (but_tokens && (strstr(result.name, "_sum") || strstr(result.name, "_count")) &&
            strcmp(result.name, "error_sums") != 0)
            continue;
        assert_true(result.size <= sizeof got);
        assert_ok(qobs_observer_read(a, result.name, wanted, result.size, &error));
        assert_ok(qobs_observer_read(b, result.name, got, result.size, &error));
        if (memcmp(got, wanted, result.size) != 0)
            fail_msg("another %s", result.name);
        compared++;
    }
    assert_true(compared >= 3);
}

static void expect_same_state(const qobs_observer *a, const qobs_observer *b)
{
    size_t size, other_size;
    unsigned char *bytes = saved_state(a, &size), *others = saved_state(b, &other_size);
    assert_int_equal(size, other_size);
    assert_memory_equal(bytes, others, size);
    free(bytes);
    free(others);
}

/* ---- The same as activations ------------------------------------------------------------------------------------- */

static void test_same_as_activations(void **state)
{
    for (size_t i = 0; i < SEARCHES; i++) {
        qobs_observer *o = make_search(i), *plain = make_search(i);
        observe_activations(o);
        observe_values(o);
        observe_values(plain);
        qobs_search_report report = {.struct_size = sizeof report}, squared = {.struct_size = sizeof squared};
        assert_ok(qobs_observer_search_report(plain, &squared, &error));
        assert_true(!squared.weighted);
        for (int wide = 0; wide < 2; wide++) {
            qobs_observer *given = make_search(i);
            const qobs_tensor h = hessian_of(i, wide ? QOBS_F64 : QOBS_F32);
            assert_ok(qobs_observer_set_hessian(given, &h, &error));
            observe_values(given);
            assert_ok(qobs_observer_search_report(given, &report, &error));
            assert_true(report.weighted && !report.fallback && report.error != squared.error);
            expect_same_results(o, given, true);
            qobs_observer_destroy(given);
        }
        qobs_observer_destroy(o);
        qobs_observer_destroy(plain);
    }
}

/* The results that name the Hessian are what was set. */
static void test_results(void **state)
{
    for (size_t i = 0; i < SEARCHES; i++) {
        qobs_observer *o = make_with(i);
        double sum[COLUMNS * MOST_BLOCK];
        float diagonal[COLUMNS];
        int64_t count = 0;
        const qobs_tensor h = hessian_of(i, QOBS_F64);
        const double *const wanted = h.data;
        const int64_t b = searches[i].block;
        const size_t size = (size_t)(COLUMNS * b) * sizeof *sum;
        assert_ok(qobs_observer_read(o, "hessian_sum", sum, size, &error));
        assert_memory_equal(sum, wanted, size);
        assert_ok(qobs_observer_read(o, "hessian_count", &count, sizeof count, &error));
        assert_int_equal(count, 1);
        assert_ok(qobs_observer_read(o, "imatrix_sum", diagonal, sizeof diagonal, &error));
        for (int64_t j = 0; j < COLUMNS; j++)
            assert_true((double)diagonal[j] == wanted[j / b * b * b + j % b * (b + 1)]);
        qobs_observer_destroy(o);
    }
}

/* Strides of any sign, and blocks of which only the symmetric part is that Hessian. */
static void test_strides_and_symmetry(void **state)
{
    for (size_t i = 0; i < SEARCHES; i++) {
        static double other[2 * COLUMNS * MOST_BLOCK];
        const int64_t b = searches[i].block, blocks = COLUMNS / b, e = (int64_t)sizeof(double);
        const int64_t strides[3] = {-b * b * 2 * e, 2 * e,
                                    b * 2 * e}; /* transposed, every second, from the last block */
        const qobs_tensor h = hessian_of(i, QOBS_F64);
        const double *const from = h.data;
        qobs_tensor strided = h, skew = h;
        qobs_observer *o = make_with(i), *given = make_search(i);
        for (int64_t k = 0; k < COLUMNS * b; k++)
            other[((blocks - 1 - k / (b * b)) * b * b + k % b * b + k / b % b) * 2] = from[k];
        strided.data = other + (blocks - 1) * b * b * 2;
        strided.strides = strides;
        assert_ok(qobs_observer_set_hessian(given, &strided, &error));
        expect_same_state(o, given);
        for (int64_t k = 0; k < COLUMNS * b; k++) /* plus a matrix that is minus its transpose */
            other[k] = from[k] + (double)(k / b % b - k % b);
        skew.data = other;
        qobs_observer_destroy(given);
        given = make_search(i);
        assert_ok(qobs_observer_set_hessian(given, &skew, &error));
        expect_same_state(o, given);
        qobs_observer_destroy(given);
        qobs_observer_destroy(o);
    }
}

/* ---- Kept, added, replaced --------------------------------------------------------------------------------------- */

static void test_reloaded(void **state)
{
    for (size_t i = 0; i < SEARCHES; i++) {
        qobs_observer *o = make_with(i), *loaded, *clone;
        size_t size;
        unsigned char *bytes = saved_state(o, &size);
        assert_ok(qobs_observer_load(&loaded, bytes, size, NULL, &error));
        assert_ok(qobs_observer_clone(&clone, o, NULL, &error));
        expect_same_state(o, loaded);
        free(bytes);
        observe_values(o);
        observe_values(loaded);
        observe_values(clone);
        expect_same_results(o, loaded, false);
        expect_same_results(o, clone, false);
        qobs_observer_destroy(o);
        qobs_observer_destroy(loaded);
        qobs_observer_destroy(clone);
    }
}

/* Two that have the same one still have its mean. With a Hessian of 0 in between it is half of it: the errors halve. */
static void test_merged(void **state)
{
    static const double zeros[COLUMNS * MOST_BLOCK];
    for (size_t i = 0; i < SEARCHES; i++) {
        qobs_observer *o = make_with(i), *other = make_with(i), *alone = make_with(i), *none = make_search(i);
        qobs_search_report one = {.struct_size = sizeof one}, half = {.struct_size = sizeof half};
        qobs_tensor zero = hessian_of(i, QOBS_F64);
        zero.data = zeros;
        observe_values(alone);
        assert_ok(qobs_observer_search_report(alone, &one, &error));
        assert_ok(qobs_observer_merge(o, (const qobs_observer *const *)&other, 1, &error));
        assert_ok(qobs_observer_set_hessian(other, &zero, &error));
        assert_ok(qobs_observer_merge(none, (const qobs_observer *const *)&o, 1, &error));
        observe_values(o);
        expect_same_results(alone, o, true);
        for (int k = 0; k < 2; k++)
            assert_ok(qobs_observer_merge(none, (const qobs_observer *const *)&other, 1, &error));
        int64_t count = 0;
        assert_ok(qobs_observer_read(none, "hessian_count", &count, sizeof count, &error));
        assert_int_equal(count, 4);
        observe_values(none);
        assert_ok(qobs_observer_search_report(none, &half, &error));
        assert_true(half.weighted && half.error == one.error / 2);
        qobs_observer_destroy(o);
        qobs_observer_destroy(other);
        qobs_observer_destroy(alone);
        qobs_observer_destroy(none);
    }
}

/* It replaces activations, also of another number of columns, and one set before. Activations that follow are added. */
static void test_replaced(void **state)
{
    for (size_t i = 0; i < SEARCHES; i++) {
        static double ones[COLUMNS * MOST_BLOCK];
        qobs_observer *o = make_with(i), *given = make_search(i);
        const qobs_tensor h = hessian_of(i, QOBS_F64), half = tensor(QOBS_F32, activations, TOKENS, COLUMNS / 2);
        qobs_tensor other = h;
        observe_activations(given);
        assert_ok(qobs_observer_set_hessian(given, &h, &error));
        expect_same_state(o, given);
        qobs_observer_reset(given);
        assert_ok(qobs_observer_observe_importance(given, &half, &error));
        assert_ok(qobs_observer_set_hessian(given, &h, &error));
        expect_same_state(o, given);
        for (int64_t k = 0; k < COLUMNS * searches[i].block; k++)
            ones[k] = 1;
        other.data = ones;
        assert_ok(qobs_observer_set_hessian(given, &other, &error));
        assert_ok(qobs_observer_set_hessian(given, &h, &error));
        expect_same_state(o, given);
        observe_activations(given);
        int64_t count = 0;
        assert_ok(qobs_observer_read(given, "hessian_count", &count, sizeof count, &error));
        assert_int_equal(count, 1 + TOKENS);
        double sum[COLUMNS * MOST_BLOCK];
        const int64_t n = COLUMNS * searches[i].block;
        assert_ok(qobs_observer_read(given, "hessian_sum", sum, (size_t)n * sizeof *sum, &error));
        for (int64_t k = 0; k < n; k++)
            assert_true(sum[k] == ((const double *)h.data)[k] * (1 + TOKENS));
        assert_refused(qobs_observer_observe_importance(given, &half, &error), QOBS_ERROR_INVALID_ARGUMENT,
                       "activations|48 columns|96");
        qobs_observer_reset(given);
        assert_refused(qobs_observer_read(given, "hessian_count", &count, sizeof count, &error), QOBS_ERROR_NO_DATA,
                       "hessian_count");
        qobs_observer_destroy(given);
        qobs_observer_destroy(o);
    }
}

/* A second weight of the same inputs: another one before it leaves no trace, also of another shape and dtype. */
static void test_next_weight(void **state)
{
    for (size_t i = 0; i < SEARCHES; i++) {
        static const double others[COLUMNS] = {1, -2, 3};
        const qobs_tensor other = tensor(QOBS_F64, others, 1, COLUMNS);
        qobs_observer *o = make_search(i), *used = make_search(i);
        observe_activations(o);
        observe_activations(used);
        assert_ok(qobs_observer_observe(used, &other, NULL, &error));
        qobs_observer_reset_batches(used);
        expect_same_state(o, used);
        observe_values(o);
        observe_values(used);
        expect_same_state(o, used);
        qobs_observer_destroy(used);
        qobs_observer_destroy(o);
    }
}

/* ---- Refused ----------------------------------------------------------------------------------------------------- */

/* Is refused with those words, and nothing has changed. */
static void expect_refusal(qobs_observer *o, const qobs_tensor *h, const char *words)
{
    size_t size, size_after;
    unsigned char *before = saved_state(o, &size);
    assert_refused(qobs_observer_set_hessian(o, h, &error), QOBS_ERROR_INVALID_ARGUMENT, words);
    unsigned char *after = saved_state(o, &size_after);
    assert_int_equal(size, size_after);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);
}

static void expect_entry_refused(qobs_observer *o, qobs_dtype dtype, int64_t at, double number, const char *words)
{
    static double wide[6 * 16 * 16];
    static float narrow[6 * 16 * 16];
    const qobs_tensor h = hessian_of(0, QOBS_F64);
    for (int64_t i = 0; i < 6 * 16 * 16; i++) {
        wide[i] = i == at ? number : ((const double *)h.data)[i];
        narrow[i] = (float)wide[i];
    }
    const qobs_tensor changed = tensor(dtype, dtype == QOBS_F64 ? (const void *)wide : narrow, 6, 16, 16);
    expect_refusal(o, &changed, words);
}

static void test_refused(void **state)
{
    const qobs_tensor h = hessian_of(0, QOBS_F64);
    for (int with = 0; with < 2; with++) {
        qobs_observer *o = with ? make_with(0) : make_search(0);
        static const struct {
            qobs_dtype dtype;
            int ndim;
            int64_t shape[4];
            const char *words;
        } shapes[] = {
            {QOBS_BF16, 3, {6, 16, 16}, "hessian|dtype is BF16|F32 and F64"},
            {QOBS_I32, 3, {6, 16, 16}, "hessian|dtype is I32|F32 and F64"},
            {QOBS_F32, 2, {96, 16}, "hessian|2 dimensions|1536 elements|3"},
            {QOBS_F32, 4, {1, 6, 16, 16}, "hessian|4 dimensions|3"},
            {QOBS_F32, 0, {0}, "hessian|0 dimensions|3"},
            {QOBS_F32, 3, {0, 16, 16}, "hessian|0 elements|at least 1"},
            {QOBS_F32, 3, {6, 16, 8}, "hessian|16 rows and 8 columns|squares"},
            {QOBS_F32, 3, {3, 8, 8}, "hessian|3 blocks of 8 columns|24 columns|blocks of 16"},
            {QOBS_F32, 3, {1, 8, 8}, "hessian|1 blocks of 8 columns|8 columns|blocks of 16"},
            {QOBS_F32, 3, {2, 32, 32}, "hessian|2 blocks of 32 columns|64 columns|blocks of 16"},
        };
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const qobs_tensor t = tensor_of(shapes[i].dtype, shapes[i].ndim, shapes[i].shape, h.data);
            expect_refusal(o, &t, shapes[i].words);
        }
        for (int wide = 0; wide < 2; wide++) {
            const qobs_dtype dtype = wide ? QOBS_F64 : QOBS_F32;
            expect_entry_refused(o, dtype, 5 * 256 + 3 * 16 + 9, (double)NAN, "hessian: [5][3][9] is |nan|finite");
            expect_entry_refused(o, dtype, 2, (double)INFINITY, "hessian: [0][0][2] is inf|finite");
            expect_entry_refused(o, dtype, 256 + 15 * 17, -0.5, "hessian: [1][15][15] is -0.5|from 0 on the diagonal");
        }
        expect_refusal(o, NULL, "hessian: is NULL");
        observe_values(o);
        expect_refusal(o, &h, "observer|observed 1 batches|hessian|before the first");
        qobs_observer_destroy(o);
    }
    static const struct {
        const char *preset, *settings, *words;
    } others[] = {
        {"modelopt.MseCalibrator", "axis=0", "modelopt.MseCalibrator|Hessian|without hessian_block_size"},
        {"modelopt.NVFP4MSECalibrator", "", "modelopt.NVFP4MSECalibrator|Hessian|without hessian_block_size"},
        {"modelopt.MaxCalibrator", "", "modelopt.MaxCalibrator does not weigh errors by a Hessian"},
        {"llmc.imatrix_mse", "", "llmc.imatrix_mse does not weigh errors by a Hessian"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        qobs_observer *o = make(others[i].preset, others[i].settings);
        expect_refusal(o, &h, others[i].words);
        qobs_observer_destroy(o);
    }
    assert_refused(qobs_observer_set_hessian(NULL, &h, &error), QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    qobs_observer *o =
        make("qobs.local_hessian", "group_size=64;hessian_block_size=24"); /* blocks of 24, 24 and 16 columns */
    static const double zeros[8 * 24 * 24];
    const qobs_tensor group = tensor(QOBS_F64, zeros, 2, 24, 24), small = tensor(QOBS_F64, zeros, 4, 19, 19),
                      ragged = tensor(QOBS_F64, zeros, 8, 24, 24);
    assert_ok(qobs_observer_set_hessian(o, &group, &error));
    expect_refusal(o, &small, "hessian|4 blocks of 19 columns|76 columns|blocks of 24");
    expect_refusal(o, &ragged, "hessian|8 blocks of 24 columns|192 columns|blocks of 24");
    qobs_observer_destroy(o);
}

/* A Hessian of another number of columns than the weight's weighs nothing, as activations. */
static void test_other_columns(void **state)
{
    qobs_observer *o = make_with(0);
    qobs_search_report report = {.struct_size = sizeof report};
    assert_ok(observe(o, ROWS, COLUMNS / 2, values));
    assert_ok(qobs_observer_search_report(o, &report, &error));
    assert_true(!report.weighted && strstr(report.fallback, "number of columns"));
    qobs_observer_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_activations),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_strides_and_symmetry),
        cmocka_unit_test(test_reloaded),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_next_weight),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_other_columns),
    };
    fill_matrix(values, ELEMENTS, 1);
    uint32_t random = 1;
    for (int i = 0; i < TOKENS * COLUMNS; i++) {
        random = random * 1664525 + 1013904223;
        activations[i] = (float)((int)(random >> 24) % 17 - 8 + (i % 5 == 0 ? i % 3 : 0));
    }
    return cmocka_run_group_tests_name("set_hessian", tests, NULL, NULL) != 0;
}
