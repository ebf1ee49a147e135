/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The caller's allocator, when it has no memory: an error, nothing leaks, inputs and objects are unchanged, and the
 * next call works. So it is after a batch that is refused. */
#include "every_preset.h"

#include <math.h>

#include "qobs/plan.h"
#include "qobs/stateless.h"
#include "calls.h"
#include "repeats.h"

static bool in_task;

static void serial(void *context, void (*task)(void *, size_t), void *argument, size_t count)
{
    in_task = true;
    for (size_t i = count; i > 0; i--)
        task(argument, i - 1);
    in_task = false;
}

struct memory {
    size_t calls, fail_at; /* the call that fails; 0: none */
    size_t blocks;         /* that are held */
    bool wrong;            /* something was released with another size, or twice */
};

struct block {
    _Alignas(16) size_t size;
    size_t mark;
};

static void *allocate(void *context, size_t size)
{
    struct memory *m = context;
    assert_false(in_task); /* tasks may run on any thread; memory is asked for on the caller's alone */
    if (++m->calls == m->fail_at)
        return NULL;
    struct block *b = malloc(sizeof *b + size);
    assert_non_null(b);
    *b = (struct block){.size = size, .mark = ~size};
    memset(b + 1, 0xa5, size);
    m->blocks++;
    return b + 1;
}

static void release(void *context, void *memory, size_t size)
{
    struct memory *m = context;
    struct block *b = (struct block *)memory - 1;
    m->wrong |= b->size != size || b->mark != ~size || m->blocks == 0;
    b->mark = 0;
    m->blocks--;
    free(b);
}

/* Something that allocates. It returns the status, and has given everything back when that is an error. */
typedef int worker(const qobs_runtime *runtime, qobs_observer *o);

/* With the n-th allocation failing, for every n, `work` fails, and with memory does what it does. */
static void exhaust(worker *work, qobs_observer *o, struct memory *m, const qobs_runtime *runtime, size_t rank,
                    size_t at_least)
{
    for (size_t n = 1;; n++) {
        *m = (struct memory){.fail_at = n, .blocks = m->blocks};
        const int status = work(runtime, o);
        assert_false(m->wrong);
        if (m->calls < n) {
            assert_int_equal(status, QOBS_OK);
            assert_true(n > at_least);
            m->fail_at = 0;
            return;
        }
        assert_refused(status, QOBS_ERROR_OUT_OF_MEMORY, "memory");
        assert_int_equal(m->blocks, rank);
    }
}

static int create_and_destroy(const qobs_runtime *runtime, qobs_observer *unused)
{
    qobs_config *config = NULL;
    qobs_observer *o = NULL;
    int status = qobs_config_create(&config, "llmc.minmax", runtime, &error);
    if (status == QOBS_OK)
        status = qobs_observer_create(&o, config, runtime, &error);
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
    return status;
}

enum { ROWS = 4096, COLUMNS = 128 }; /* f32: 2 MB, so that threads get pieces */

static float *matrix(void)
{
    static float data[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        data[i] = (float)(i % 1000 - 400);
    return data;
}

static int plan_with_g_idx(const qobs_runtime *runtime, qobs_observer *unused)
{
    static const int64_t columns[] = {1, 0, 1, 0};
    const qobs_tensor value = tensor(QOBS_F32, matrix(), 3, 4), g_idx = tensor(QOBS_I64, columns, 4);
    qobs_config *config = make_config("llmc.minmax", "base_name=weight;group_size=2", NULL);
    qobs_plan *plan = NULL;
    const int status = qobs_plan_create(&plan, config, &value, &g_idx, runtime, &error);
    qobs_plan_destroy(plan);
    qobs_config_destroy(config);
    return status;
}

static int minmax_on_threads(const qobs_runtime *runtime, qobs_observer *unused)
{
    const qobs_tensor value = tensor(QOBS_F32, matrix(), ROWS, COLUMNS);
    qobs_config *config = make_config("llmc.minmax", "base_name=input;strategy=group;group_size=32", NULL);
    float min[4], max[4];
    const int status = call_minmax(config, &value, NULL, min, max, NULL, runtime, &error);
    for (int i = 0; status == QOBS_OK && i < 4; i++)
        assert_true(min[i] == -400 && max[i] == 599);
    qobs_config_destroy(config);
    return status;
}

static int search_with_importance(const qobs_runtime *runtime, qobs_observer *unused)
{
    const qobs_tensor value = tensor(QOBS_F32, matrix(), 8, 64);
    qobs_config *config = make_config("llmc.imatrix_mse", "group_size=16;num_bits=4", NULL);
    qobs_observer *o = NULL;
    int status = qobs_observer_create(&o, config, runtime, &error);
    if (status == QOBS_OK)
        status = qobs_observer_observe_importance(o, &value, &error);
    if (status == QOBS_OK)
        status = qobs_observer_observe(o, &value, NULL, &error);
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
    return status;
}

static int search_for_global_scale(const qobs_runtime *runtime, qobs_observer *unused)
{
    const qobs_tensor value = tensor(QOBS_F32, matrix(), 8, 64);
    qobs_config *config = make_config(
        "llmc.mse", "base_name=weight;strategy=tensor_group;group_size=16;type=float;num_bits=4;version=2025-10", NULL);
    float min[32], max[32];
    int status = call_global_search(config, &value, min, max, runtime, &error);
    if (status == QOBS_OK)
        status = call_search(config, &value, NULL, matrix() + 500, NULL, min, max, NULL, NULL, NULL, runtime, &error);
    qobs_config_destroy(config);
    return status;
}

static int histograms(const qobs_runtime *runtime, qobs_observer *unused)
{
    static uint64_t counts[4 * 50];
    const qobs_tensor value = tensor(QOBS_F32, matrix(), ROWS, COLUMNS);
    const qobs_histogram_options bins = {.struct_size = sizeof bins, .count = 50};
    qobs_config *config = make_config("llmc.minmax", "base_name=input;strategy=group;group_size=32", NULL);
    int status = call_histogram(config, &value, NULL, &bins, counts, NULL, NULL, NULL, runtime, &error);
    if (status == QOBS_OK)
        status = call_histogram(NULL, &value, NULL, &bins, counts, NULL, NULL, NULL, runtime, &error);
    qobs_config_destroy(config);
    return status;
}

static int ranges_in_histograms(const qobs_runtime *runtime, qobs_observer *unused)
{
    float counts[300], edges[301], min, max;
    for (int i = 0; i <= 300; i++) {
        edges[i] = (float)i;
        counts[i % 300] = (float)(300 - i % 300);
    }
    const qobs_tensor histogram = tensor(QOBS_F32, counts, 300), bin_edges = tensor(QOBS_F32, edges, 301);
    qobs_config *quark = make_config("quark.PerTensorMSEObserver", "", NULL),
                *modelopt = make_config("modelopt.HistogramCalibrator", "", NULL),
                *torch = make_config("torch.HistogramObserver", "", NULL);
    int status = call_range_by_percentile(quark, &histogram, &bin_edges, 99, &min, &max, runtime, &error);
    if (status == QOBS_OK)
        status = call_range_by_mse(modelopt, &histogram, &bin_edges, 1, 128, &min, &max, runtime, &error);
    if (status == QOBS_OK)
        status = call_range_by_entropy(modelopt, &histogram, &bin_edges, 1, 128, &min, &max, runtime, &error);
    if (status == QOBS_OK)
        status = call_range_by_l2_norm(torch, &histogram, &bin_edges, &min, &max, runtime, &error);
    qobs_config_destroy(quark);
    qobs_config_destroy(modelopt);
    qobs_config_destroy(torch);
    return status;
}

static int fake_quantize_with_g_idx(const qobs_runtime *runtime, qobs_observer *unused)
{
    static float out[ROWS * COLUMNS], scales[ROWS * 2];
    int32_t groups[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        groups[i] = i % 2;
    for (int i = 0; i < ROWS * 2; i++)
        scales[i] = 0.5f;
    const qobs_tensor value = tensor(QOBS_F32, matrix(), ROWS, COLUMNS), g_idx = tensor(QOBS_I32, groups, COLUMNS);
    const qobs_tensor scale = tensor(QOBS_F32, scales, ROWS, 2);
    qobs_config *config = make_config("llmc.minmax", "base_name=weight;group_size=64", NULL);
    const int status = call_fake_quantize(config, NULL, &value, &g_idx, &scale, NULL, NULL, out, NULL, runtime, &error);
    qobs_config_destroy(config);
    return status;
}

/* In place an output is an input, too: it is as it was. */
static int fake_quantize_in_place(const qobs_runtime *runtime, qobs_observer *unused)
{
    static float x[ROWS * COLUMNS], scales[ROWS], one = 3;
    int status = QOBS_OK;
    for (int by_amax = 0; status == QOBS_OK && by_amax < 2; by_amax++) {
        memcpy(x, matrix(), sizeof x);
        for (int i = 0; i < ROWS; i++)
            scales[i] = 0.5f;
        const qobs_tensor value = tensor(QOBS_F32, x, ROWS, COLUMNS), scale = tensor(QOBS_F32, scales, ROWS, 1),
                          amax = tensor(QOBS_F32, &one, 1);
        qobs_config *config = by_amax ? make_config("modelopt.MaxCalibrator", "", NULL)
                                      : make_config("llmc.minmax", "base_name=weight;strategy=channel", NULL);
        const qobs_fake_quantize_args args = {.struct_size = sizeof args,
                                              .config = config,
                                              .value = &value,
                                              .scale = by_amax ? NULL : &scale,
                                              .amax = by_amax ? &amax : NULL,
                                              .out = x,
                                              .out_size = sizeof x,
                                              .runtime = runtime};
        status = qobs_fake_quantize(&args, &error);
        if (status != QOBS_OK)
            assert_memory_equal(x, matrix(), sizeof x);
        qobs_config_destroy(config);
    }
    return status;
}

static int gptq_in_place(const qobs_runtime *runtime, qobs_observer *unused)
{
    enum { SIDE = 8 };
    static float x[SIDE * SIDE], others[3][SIDE * SIDE], factor[SIDE * SIDE], scales[SIDE * SIDE];
    memcpy(x, matrix(), sizeof x);
    for (int i = 0; i < SIDE * SIDE; i++) {
        factor[i] = i % (SIDE + 1) == 0;
        scales[i] = 0.5f;
    }
    const qobs_tensor scale = tensor(QOBS_F32, scales, SIDE, SIDE), u = tensor(QOBS_F32, factor, SIDE, SIDE);
    qobs_config *config = make_config("llmc.minmax", "base_name=weight;strategy=channel", NULL);
    const qobs_gptq_block_args args = {.struct_size = sizeof args,
                                       .config = config,
                                       .factor = &u,
                                       .scale = &scale,
                                       .value = x,
                                       .quantized = others[0],
                                       .errors = others[1],
                                       .losses = others[2],
                                       .value_size = sizeof x,
                                       .runtime = runtime};
    const int status = qobs_gptq_block(&args, &error);
    if (status != QOBS_OK)
        assert_memory_equal(x, matrix(), sizeof x);
    qobs_config_destroy(config);
    return status;
}

static int observe_f32(const qobs_runtime *unused, qobs_observer *o)
{
    return observe(o, ROWS, COLUMNS, matrix());
}

static int observe_f64(const qobs_runtime *unused, qobs_observer *o)
{
    const qobs_tensor value = tensor(QOBS_F64, ((const double[]){-1000, 0.1, 3}), 3);
    return qobs_observer_observe(o, &value, NULL, &error);
}

static void test_memory(void **state)
{
    struct memory m = {0};
    const qobs_allocator allocator = {sizeof allocator, allocate, release, &m};
    const qobs_executor executor = {sizeof executor, 4, serial, NULL};
    const qobs_runtime runtime = {sizeof runtime, &allocator, &executor};
    exhaust(create_and_destroy, NULL, &m, &runtime, 0, 2);
    exhaust(plan_with_g_idx, NULL, &m, &runtime, 0, 4);
    exhaust(minmax_on_threads, NULL, &m, &runtime, 0, 1);
    exhaust(search_with_importance, NULL, &m, &runtime, 0, 6);
    exhaust(search_for_global_scale, NULL, &m, &runtime, 0, 5);
    exhaust(histograms, NULL, &m, &runtime, 0, 8);
    exhaust(ranges_in_histograms, NULL, &m, &runtime, 0, 4);
    exhaust(fake_quantize_with_g_idx, NULL, &m, &runtime, 0, 4);
    exhaust(fake_quantize_in_place, NULL, &m, &runtime, 0, 1);
    exhaust(gptq_in_place, NULL, &m, &runtime, 0, 1);
    assert_int_equal(m.blocks, 0);

    /* an observer that had no memory for a batch is as it was before the batch */
    static const struct {
        const char *preset, *min;
        worker *first, *second;
        float after_first, after_second;
    } cases[] = {{"llmc.static_minmax", "min_vals", observe_f32, observe_f32, -400, -400},
                 {"torch.MinMaxObserver", "min_val", observe_f32, observe_f64, -400, -1000},
                 {"torch.MinMaxObserver", "min_val", observe_f64, observe_f32, -1000, -1000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qobs_config *config = make_config(cases[i].preset, "base_name=input", &runtime);
        qobs_observer *o = NULL;
        m = (struct memory){.blocks = m.blocks};
        assert_ok(qobs_observer_create(&o, config, &runtime, &error));
        qobs_config_destroy(config);
        assert_int_equal(m.blocks, 1);
        exhaust(cases[i].first, o, &m, &runtime, 1, 2);
        assert_int_equal(counts_of(o).batches, 1);
        assert_result(o, cases[i].min, cases[i].after_first);

        for (size_t n = 1; n <= 8; n++) { /* the second batch: some of what it needs may be there already */
            m = (struct memory){.fail_at = n, .blocks = m.blocks};
            const uint64_t before = counts_of(o).batches;
            const int status = cases[i].second(&runtime, o);
            if (m.calls < n) {
                assert_ok(status);
                break;
            }
            assert_refused(status, QOBS_ERROR_OUT_OF_MEMORY, "memory");
            assert_int_equal(counts_of(o).batches, before);
            assert_result(o, cases[i].min, cases[i].after_first);
        }
        assert_result(o, cases[i].min, cases[i].after_second);
        qobs_observer_reset(o);
        m.fail_at = 0;
        assert_ok(cases[i].first(&runtime, o));
        assert_result(o, cases[i].min, cases[i].after_first);
        qobs_observer_destroy(o);
        assert_true(m.blocks == 0 && !m.wrong);
    }
}

/* ---- Every preset ------------------------------------------------------------------------------------------------ */

enum { BATCH_ROWS = 2048, BATCH_COLUMNS = 96 }; /* f32: 768 KB, so that threads get pieces */

static float batches[3][BATCH_ROWS * BATCH_COLUMNS];

/* Steps in the life of an observer, in this order. */
enum step { HESSIAN, IMPORTANCE, AMAX, WEIGHT, INTO_EMPTY, FIRST, WIDER, OTHER_SHAPE, READ, MERGE, LOAD, STEPS };

static int read_all(const qobs_observer *o)
{
    static _Alignas(8) unsigned char out[BATCH_ROWS * BATCH_COLUMNS * 8];
    int status = QOBS_OK;
    static const char *const names[] = {"scale", "zero_point", "min_vals",  "max_val",
                                        "amax",  "new_max",    "histogram", "calib_bin_edges"};
    for (size_t i = 0; i < sizeof names / sizeof *names && status != QOBS_ERROR_OUT_OF_MEMORY; i++) {
        qobs_result result = {.struct_size = sizeof result};
        status = qobs_observer_result_find(o, names[i], &result, &error);
        if (status == QOBS_OK)
            status = qobs_observer_read(o, names[i], out, result.size, &error);
    }
    return status == QOBS_ERROR_OUT_OF_MEMORY ? status : QOBS_OK; /* not all have all of them */
}

static int load(const qobs_observer *o, const qobs_runtime *runtime, struct memory *m)
{
    qobs_observer *copy = NULL;
    size_t size;
    unsigned char *bytes = saved_state(o, &size);
    const size_t blocks = m->blocks;
    const int status = qobs_observer_load(&copy, bytes, size, runtime, &error);
    assert_true(status == QOBS_OK ? copy != NULL : copy == NULL);
    qobs_observer_destroy(copy);
    assert_int_equal(m->blocks, blocks);
    free(bytes);
    return status;
}

/* Blocks have the size that the observer has; it refuses others. */
static int set_hessian(qobs_observer *o)
{
    static float ones[3 * 32 * 32];
    static const int64_t sizes[] = {8, 16, 32};
    int status = QOBS_ERROR_INVALID_ARGUMENT;
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        ones[i] = 1;
    for (size_t i = 0; status == QOBS_ERROR_INVALID_ARGUMENT && i < sizeof sizes / sizeof *sizes; i++) {
        const qobs_tensor hessian = tensor(QOBS_F32, ones, BATCH_COLUMNS / sizes[i], sizes[i], sizes[i]);
        status = qobs_observer_set_hessian(o, &hessian, &error);
    }
    return status;
}

static int do_step(enum step step, qobs_observer *o, const qobs_observer *other, const qobs_runtime *runtime,
                   struct memory *m)
{
    static const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const qobs_tensor activations = tensor(QOBS_F32, batches[2], 128, BATCH_COLUMNS), amax = tensor(QOBS_F32, ones, 1);
    const qobs_tensor block = tensor(QOBS_F32, ones, 16);
    switch (step) {
    case HESSIAN:
        return set_hessian(o);
    case IMPORTANCE:
        return qobs_observer_observe_importance(o, &activations, &error);
    case AMAX:
        return qobs_observer_set_reference_amax(o, &amax, &error);
    case WEIGHT:
        return qobs_observer_set_error_weights(o, &block, &error);
    case FIRST:
    case WIDER:
        return observe(o, BATCH_ROWS, BATCH_COLUMNS, batches[step == WIDER]);
    case OTHER_SHAPE:
        return observe(o, BATCH_ROWS / 2, BATCH_COLUMNS, batches[2]);
    case READ:
        return read_all(o);
    case INTO_EMPTY:
    case MERGE:
        return qobs_observer_merge(o, &other, 1, &error);
    default:
        return load(o, runtime, m);
    }
}

/* Every allocation of one step in turn, until there is memory for all; then the step does what it does with memory.
 * Returns how many failed. */
static size_t exhaust_step(const struct every_preset *p, enum step step, qobs_observer *o, const qobs_observer *other,
                           const qobs_runtime *runtime, struct memory *m, int expected)
{
    int status = QOBS_ERROR_OUT_OF_MEMORY;
    size_t n = 0;
    while (status == QOBS_ERROR_OUT_OF_MEMORY) {
        size_t size, size_after;
        unsigned char *before = saved_state(o, &size);
        *m = (struct memory){.fail_at = ++n, .blocks = m->blocks};
        status = do_step(step, o, other, runtime, m);
        const bool failed = m->calls >= n;
        m->fail_at = 0;
        if (m->wrong || status != (failed ? QOBS_ERROR_OUT_OF_MEMORY : expected))
            fail_msg("%s, %s: step %d, allocation %zu of %zu: status %d (%s), expected %d%s", p->preset, p->settings,
                     (int)step, n, m->calls, status, error.message, expected, m->wrong ? ", released wrongly" : "");
        unsigned char *after = saved_state(o, &size_after);
        if (status != QOBS_OK && (size != size_after || memcmp(before, after, size) != 0))
            fail_msg("%s, %s: step %d, allocation %zu: something has changed", p->preset, p->settings, (int)step, n);
        free(before);
        free(after);
    }
    return n - 1;
}

/* All steps, or those from `first` on. */
static size_t exhaust_preset(const struct every_preset *p, enum step first)
{
    struct memory m = {0};
    const qobs_allocator allocator = {sizeof allocator, allocate, release, &m};
    const qobs_executor executor = {sizeof executor, 4, serial, NULL};
    const qobs_runtime runtime = {sizeof runtime, &allocator, &executor};
    qobs_config *config = make_config(p->preset, p->settings, &runtime);
    qobs_observer *o = NULL, *with_memory = make(p->preset, p->settings), *other = make(p->preset, p->settings);
    size_t failures = 0, size, expected_size;
    assert_ok(qobs_observer_create(&o, config, &runtime, &error));
    if (weighs_columns(p))
        assert_int_equal(do_step(IMPORTANCE, other, NULL, NULL, NULL), QOBS_OK);
    assert_ok(observe(other, BATCH_ROWS, BATCH_COLUMNS, batches[2]));
    for (enum step step = first; step < STEPS; step++) {
        struct memory unused = {0};
        if (step == INTO_EMPTY && first != INTO_EMPTY)
            continue;
        const int expected = do_step(step, with_memory, other, NULL, &unused);
        failures += exhaust_step(p, step, o, other, &runtime, &m, expected);
    }
    unsigned char *got = saved_state(o, &size), *wanted = saved_state(with_memory, &expected_size);
    assert_int_equal(size, expected_size);
    assert_memory_equal(got, wanted, size);
    free(got);
    free(wanted);
    qobs_observer_destroy(o);
    qobs_observer_destroy(other);
    qobs_observer_destroy(with_memory);
    qobs_config_destroy(config);
    assert_true(m.blocks == 0 && !m.wrong);
    return failures;
}

static void test_presets(void **state)
{
    for (uint32_t i = 0; i < 3; i++)
        fill_matrix(batches[i], sizeof batches[i] / sizeof *batches[i], i);
    for (size_t i = 0; preset_at(i); i += (size_t)repeats(2, 1)) {
        const struct every_preset *p = preset_at(i);
        const bool looks_at_data = strstr(p->preset, "Placeholder") == NULL && strstr(p->preset, "Fixed") == NULL;
        /* to load takes 2, a batch a plan and room for its range */
        assert_in_range(exhaust_preset(p, HESSIAN), looks_at_data ? 5 : 2, 200);
        exhaust_preset(p, INTO_EMPTY);
    }
}

/* A batch that is refused leaves every preset as it was: with NaN or infinity as its last element, of another dtype, of
 * integers, with importance of other columns. */
static void test_refused(void **state)
{
    static float spoiled[BATCH_ROWS * BATCH_COLUMNS];
    static double wide[BATCH_ROWS * BATCH_COLUMNS];
    size_t refused = 0;
    for (size_t i = 0; preset_at(i); i++) {
        const struct every_preset *p = preset_at(i);
        qobs_observer *o = make(p->preset, p->settings);
        struct memory unused = {0};
        if (weighs_columns(p))
            assert_int_equal(do_step(IMPORTANCE, o, NULL, NULL, &unused), QOBS_OK);
        assert_ok(observe(o, BATCH_ROWS, BATCH_COLUMNS, batches[0]));
        for (int how = 0; how < 5; how++) {
            size_t size, size_after;
            unsigned char *before = saved_state(o, &size);
            memcpy(spoiled, batches[1], sizeof spoiled);
            spoiled[BATCH_ROWS * BATCH_COLUMNS - 1] = how == 0 ? NAN : INFINITY;
            const qobs_tensor values[] = {tensor(QOBS_F32, spoiled, BATCH_ROWS, BATCH_COLUMNS),
                                          tensor(QOBS_F32, spoiled, BATCH_ROWS, BATCH_COLUMNS),
                                          tensor(QOBS_F64, wide, BATCH_ROWS, BATCH_COLUMNS),
                                          tensor(QOBS_I32, spoiled, BATCH_ROWS, BATCH_COLUMNS),
                                          tensor(QOBS_F32, spoiled, BATCH_ROWS, BATCH_COLUMNS / 2)};
            const int status = how == 4 ? qobs_observer_observe_importance(o, &values[how], &error)
                                        : qobs_observer_observe(o, &values[how], NULL, &error);
            unsigned char *after = saved_state(o, &size_after);
            if (status != QOBS_OK && (size != size_after || memcmp(before, after, size) != 0))
                fail_msg("%s, %s: batch %d is refused, and something has changed", p->preset, p->settings, how);
            refused += status != QOBS_OK;
            free(before);
            free(after);
        }
        qobs_observer_destroy(o);
    }
    assert_true(refused > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL) != 0;
}
