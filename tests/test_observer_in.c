/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observers in the caller's memory: they stay within it, and are what observers elsewhere are. */
#include "base/runtime.h"
#include "every_preset.h"

enum { ROWS = 40, COLUMNS = 96, FENCE = 64 };

static float batches[3][ROWS * COLUMNS];

/* Counts what does not come back. */
static size_t rank;

static void *allocate(void *context, size_t size)
{
    rank++;
    return malloc(size);
}

static void release(void *context, void *memory, size_t size)
{
    (void)context, (void)size;
    rank--;
    free(memory);
}

static const qobs_allocator allocator = {sizeof allocator, allocate, release, NULL};
static const qobs_runtime runtime = {sizeof runtime, &allocator, NULL};

/* Memory at an odd address between fences. */
struct place {
    unsigned char *all, *memory;
    size_t size;
};

static struct place make_place(size_t size, size_t offset)
{
    struct place p = {.all = malloc(size + offset + 2 * FENCE), .size = size};
    assert_non_null(p.all);
    p.memory = p.all + FENCE + offset;
    memset(p.all, 0x5a, size + offset + 2 * FENCE);
    return p;
}

static void check_and_free(struct place *p)
{
    for (size_t i = 0; i < FENCE; i++)
        assert_true(p->memory[-1 - (ptrdiff_t)i] == 0x5a && p->memory[p->size + i] == 0x5a);
    free(p->all);
}

/* State that is not bounded by the shape of the batches. */
static bool grows(const struct every_preset *p)
{
    return strstr(p->preset, "PowOf2") || strstr(p->preset, "PerTensorHistogramObserver") ||
           strstr(p->preset, "Percentile") || strstr(p->preset, "PerTensorMSE") ||
           strstr(p->preset, "HistogramCalibrator") || strstr(p->preset, "ort.Entropy") ||
           strstr(p->preset, "ort.Distribution");
}

static void expect_same_state(const struct every_preset *p, const qobs_observer *a, const qobs_observer *b)
{
    size_t size, other_size;
    unsigned char *bytes = saved_state(a, &size), *others = saved_state(b, &other_size);
    if (size != other_size || memcmp(bytes, others, size) != 0)
        fail_msg("%s, %s: another state in the caller's memory", p->preset, p->settings);
    free(bytes);
    free(others);
}

static void observe_both(const struct every_preset *p, qobs_observer *a, qobs_observer *b, qobs_dtype dtype, int batch)
{
    static double wide[ROWS * COLUMNS];
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        wide[i] = (double)batches[batch][i];
    const qobs_tensor value =
        dtype == QOBS_F64 ? tensor(QOBS_F64, wide, ROWS, COLUMNS) : tensor(QOBS_F32, batches[batch], ROWS, COLUMNS);
    if (weighs_columns(p))
        for (int i = 0; i < 2; i++)
            assert_ok(qobs_observer_observe_importance(i ? a : b, &value, &error));
    const int status = qobs_observer_observe(b, &value, NULL, &error);
    assert_int_equal(qobs_observer_observe(a, &value, NULL, &error), status);
}

static void check_preset(const struct every_preset *p, qobs_dtype dtype)
{
    const qobs_tensor shape = tensor(dtype, batches[0], ROWS, COLUMNS);
    qobs_config *config = make_config(p->preset, p->settings, NULL);
    size_t size, quant_min;
    assert_ok(qobs_observer_size(config, NULL, &quant_min, &error));
    assert_ok(qobs_observer_size(config, &shape, &size, &error));
    assert_true(size >= quant_min);
    struct place place = make_place(size, 3);
    qobs_observer *o = NULL, *elsewhere = make(p->preset, p->settings);
    rank = 0;
    assert_ok(qobs_observer_create_in(&o, place.memory, place.size, config, &runtime, &error));
    qobs_config_destroy(config);
    assert_true((unsigned char *)o >= place.memory && (unsigned char *)o < place.memory + place.size);
    for (int round = 0; round < 2; round++) {
        for (int batch = 0; batch < 3; batch++) {
            observe_both(p, o, elsewhere, dtype, batch);
            expect_same_state(p, o, elsewhere);
            if (rank > 0 && !(grows(p) && batch > 0))
                fail_msg("%s, %s, %s: %zu blocks outside after batch %d", p->preset, p->settings,
                         qobs_dtype_name(dtype), rank, batch);
        }
        qobs_observer_reset(o);
        qobs_observer_reset(elsewhere);
        assert_int_equal(rank, 0);
    }
    /* merging may take more */
    qobs_observer *other = make(p->preset, p->settings);
    observe_both(p, other, elsewhere, dtype, 1);
    const qobs_observer *others = other;
    qobs_observer_reset(elsewhere);
    observe_both(p, o, elsewhere, dtype, 1);
    qobs_observer_merge(o, &others, 1, &error);
    qobs_observer_destroy(other);
    qobs_observer_destroy(o);
    qobs_observer_destroy(elsewhere);
    assert_int_equal(rank, 0);
    check_and_free(&place);
}

static void test_every_preset(void **state)
{
    for (size_t i = 0; preset_at(i); i++) {
        check_preset(preset_at(i), QOBS_F32);
        check_preset(preset_at(i), QOBS_F64);
    }
}

/* With any less memory the rest comes from the allocator; with too little for the observer itself there is an error. */
static void test_less(void **state)
{
    const struct every_preset *p = NULL;
    for (size_t i = 0; preset_at(i) && !p; i++)
        if (strcmp(preset_at(i)->preset, "torch.HistogramObserver") == 0)
            p = preset_at(i);
    const qobs_tensor value = tensor(QOBS_F32, batches[0], ROWS, COLUMNS);
    qobs_config *config = make_config(p->preset, p->settings, NULL);
    qobs_observer *elsewhere = make(p->preset, p->settings);
    assert_ok(qobs_observer_observe(elsewhere, &value, NULL, &error));
    size_t size, quant_min;
    assert_ok(qobs_observer_size(config, NULL, &quant_min, &error));
    assert_ok(qobs_observer_size(config, &value, &size, &error));
    for (size_t n = 0; n <= size; n += n < quant_min + 200 ? 1 : 97) {
        struct place place = make_place(n, n % 16);
        qobs_observer *o = NULL;
        const int status = qobs_observer_create_in(&o, place.memory, n, config, &runtime, &error);
        if (status != QOBS_OK) {
            assert_refused(status, QOBS_ERROR_INVALID_ARGUMENT, "size|bytes");
            assert_true(n < quant_min && o == NULL);
        } else {
            assert_ok(qobs_observer_observe(o, &value, NULL, &error));
            expect_same_state(p, o, elsewhere);
            qobs_observer_destroy(o);
        }
        assert_int_equal(rank, 0);
        check_and_free(&place);
    }
    qobs_observer *o = NULL;
    assert_refused(qobs_observer_create_in(&o, NULL, 10000, config, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "memory: is NULL");
    assert_refused(qobs_observer_create_in(NULL, &o, 10000, config, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "observer: is NULL");
    assert_refused(qobs_observer_size(config, &value, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "size: is NULL");
    assert_refused(qobs_observer_size(NULL, &value, &size, &error), QOBS_ERROR_INVALID_ARGUMENT, "config: is NULL");
    const qobs_tensor huge = tensor(QOBS_F32, NULL, INT64_MAX, 4);
    assert_refused(qobs_observer_size(config, &huge, &size, &error), QOBS_ERROR_INVALID_ARGUMENT, "value|2^48");
    qobs_observer_destroy(elsewhere);
    qobs_config_destroy(config);
}

/* Blocks of any size taken and given back in any order lie apart, and when all are back, all is there again. */
static void test_region(void **state)
{
    enum { SIZE = 4096, BLOCKS = 20 };
    static _Alignas(REGION_ALIGNMENT) unsigned char memory[SIZE];
    struct region region = qobs_region_make(memory, memory + SIZE);
    unsigned char *blocks[BLOCKS] = {0};
    size_t sizes[BLOCKS] = {0};
    uint32_t random = 1;
    size_t failures = 0;
    for (int n = 0; n < 100000; n++) {
        random = random * 1664525 + 1013904223;
        const size_t i = (random >> 8) % BLOCKS;
        if (blocks[i]) {
            for (size_t k = 0; k < sizes[i]; k++)
                assert_int_equal(blocks[i][k], i);
            qobs_region_release(blocks[i]);
            blocks[i] = NULL;
            continue;
        }
        sizes[i] = (random >> 13) % 600;
        blocks[i] = qobs_region_allocate(&region, sizes[i]);
        failures += !blocks[i];
        if (!blocks[i])
            continue;
        assert_true(blocks[i] >= memory && blocks[i] + sizes[i] <= memory + SIZE &&
                    (uintptr_t)blocks[i] % REGION_ALIGNMENT == 0);
        memset(blocks[i], (int)i, sizes[i]);
    }
    assert_in_range(failures, 1000, 60000);
    for (size_t i = 0; i < BLOCKS; i++)
        if (blocks[i])
            qobs_region_release(blocks[i]);
    assert_null(qobs_region_allocate(&region, SIZE));
    assert_null(qobs_region_allocate(&region, SIZE_MAX));
    assert_non_null(qobs_region_allocate(&region, SIZE - (qobs_region_block(SIZE) - SIZE)));
    for (size_t size = 0; size < 40; size++) {
        struct region small = qobs_region_make(memory, memory + size);
        unsigned char *block = qobs_region_allocate(&small, 1);
        assert_true(!block || block + 1 <= memory + size);
        assert_true((block != NULL) == (size >= qobs_region_block(1)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_preset),
        cmocka_unit_test(test_less),
        cmocka_unit_test(test_region),
    };
    for (uint32_t i = 0; i < 3; i++)
        fill_matrix(batches[i], ROWS * COLUMNS, i);
    return cmocka_run_group_tests_name("observer_in", tests, NULL, NULL) != 0;
}
