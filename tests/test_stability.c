/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Programs that are linked once and keep running rely on this: the version, and structures of older and newer
 * headers. */
#include "calls.h"
#include "base/struct_size.h"
#include "observing.h"
#include "qobs/gguf.h"
#include "qobs/quantizer.h"
#include "qobs/stateless.h"

static void test_version(void **state)
{
    char numbers[32];
    snprintf(numbers, sizeof numbers, "%d.%d.%d", QOBS_VERSION_MAJOR, QOBS_VERSION_MINOR, QOBS_VERSION_PATCH);
    assert_string_equal(numbers, QOBS_VERSION);
    assert_string_equal(qobs_version(), QOBS_VERSION);
    assert_string_equal(qobs_version(), PROJECT_VERSION);
}

/* A structure as the first version had it, as the library knows it, and as a later header has it. */
struct first {
    size_t struct_size;
    int a;
};
struct now {
    size_t struct_size;
    int a;
    int64_t b;
};
struct later {
    size_t struct_size;
    int a;
    int64_t b;
    void *c;
    bool d;
};

static void test_rules(void **state)
{
    const struct first older = {.struct_size = sizeof older};
    const struct now same = {.struct_size = sizeof same, .b = -1};
    struct later newer = {.struct_size = sizeof newer, .b = -1};
#define check(s) struct_size_check("s", &s, sizeof(struct first), sizeof(struct now), &error)
    assert_int_equal(check(older), QOBS_OK);
    assert_int_equal(check(same), QOBS_OK);
    assert_int_equal(check(newer), QOBS_OK);
    newer.d = true;
    assert_refused(check(newer), QOBS_ERROR_UNSUPPORTED, "s: |byte 32|" QOBS_VERSION);
    newer = (struct later){.struct_size = sizeof newer, .c = &newer};
    assert_refused(check(newer), QOBS_ERROR_UNSUPPORTED, "s: |does not know|must be 0");
    newer = (struct later){.struct_size = SIZE_MAX}; /* nothing behind the structure is looked at */
    assert_refused(check(newer), QOBS_ERROR_INVALID_ARGUMENT, "s: struct_size is 18446744073709551615, expected 24");
    newer.struct_size = sizeof older - 1;
    assert_refused(check(newer), QOBS_ERROR_INVALID_ARGUMENT, "s: struct_size is 15, expected 24");
#undef check
}

/* ---- Structures of the header ------------------------------------------------------------------------------------ */

/* A structure as a later header might have it, with whatever is called in between. */
#define later_than(type)                                                                                               \
    union {                                                                                                            \
        type known;                                                                                                    \
        unsigned char bytes[sizeof(type) + 16];                                                                        \
    }

static void *allocate_nothing(void *context, size_t size)
{
    (void)context, (void)size;
    return NULL;
}

static void release_nothing(void *context, void *memory, size_t size) { (void)context, (void)memory, (void)size; }

static void serial(void *context, void (*task)(void *, size_t), void *argument, size_t count)
{
    for (size_t i = count; i > 0; i--)
        task(argument, i - 1);
}

static void test_structures(void **state)
{
    qobs_observer *o = make("llmc.minmax", ""), *other = NULL;
    qobs_config *config = make_config("llmc.minmax", "base_name=weight;strategy=group;group_size=2", NULL);
    const float data[] = {1, 2, 3, 4};
    const int64_t shape[] = {2, 2}, huge[] = {INT64_MAX / 2, 8}, negative[] = {2, -2};
    float min[2], max[2];
    qobs_tensor t = tensor_of(QOBS_F32, 2, shape, data);
    const qobs_tensor right = t;

#define assert_tensor_refused(words)                                                                                   \
    assert_refused(qobs_observer_observe(o, &t, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "value|" words);           \
    assert_refused(call_minmax(config, &t, NULL, min, max, NULL, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,           \
                   "value|" words);                                                                                    \
    t = right
    t.struct_size--;
    assert_tensor_refused("struct_size|expected");
    t.dtype = (qobs_dtype)99;
    assert_tensor_refused("dtype 99");
    t.ndim = 9;
    assert_tensor_refused("ndim|9|0 to 8");
    t.ndim = -1;
    assert_tensor_refused("ndim|-1");
    t.shape = NULL;
    assert_tensor_refused("shape is NULL");
    t.data = NULL;
    assert_tensor_refused("data is NULL|4 elements");
    t.shape = negative;
    assert_tensor_refused("shape[1]|-2");
    t.shape = huge;
    assert_tensor_refused("2^48 elements");
    assert_refused(qobs_observer_observe(o, NULL, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "value|NULL");
    assert_refused(qobs_observer_observe(NULL, &t, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "observer|NULL");
    assert_refused(call_minmax(config, &t, NULL, NULL, max, NULL, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "min|NULL");

    const int32_t columns[] = {1, 0, 2};
    const qobs_tensor floats = tensor(QOBS_F32, data, 2), many = tensor(QOBS_I32, columns, 3),
                      beyond = tensor(QOBS_I32, columns + 1, 2);
    assert_refused(call_minmax(config, &t, &floats, min, max, NULL, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "g_idx|F32|I32");
    assert_refused(call_minmax(config, &t, &many, min, max, NULL, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "g_idx|3|2");
    assert_refused(call_minmax(config, &t, &beyond, min, max, NULL, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "g_idx|entry 1|2");
    assert_refused(qobs_observer_observe(o, &t, &beyond, &error), QOBS_ERROR_INVALID_ARGUMENT, "g_idx|tensor");

    qobs_counts counts = {.struct_size = offsetof(qobs_counts, tokens) - 1};
    qobs_result result = {.struct_size = 0};
    assert_ok(qobs_observer_observe(o, &t, NULL, &error));
    assert_refused(qobs_observer_counts(o, &counts, &error), QOBS_ERROR_INVALID_ARGUMENT, "counts|struct_size");
    assert_refused(call_minmax(config, &t, NULL, min, max, &counts, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "counts|struct_size");
    assert_refused(qobs_observer_result_info(o, 0, &result, &error), QOBS_ERROR_INVALID_ARGUMENT, "result|struct_size");
    assert_refused(qobs_observer_result_find(o, "scale", NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "result|is NULL");

    qobs_allocator allocator = {sizeof allocator - 1, allocate_nothing, release_nothing, NULL};
    qobs_executor executor = {sizeof executor - 1, 2, serial, NULL};
    qobs_runtime runtime = {.struct_size = sizeof runtime - 1};
    assert_refused(qobs_observer_create(&other, config, &runtime, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "runtime|struct_size");
    runtime = (qobs_runtime){sizeof runtime, &allocator, NULL};
    assert_refused(qobs_observer_create(&other, config, &runtime, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "allocator|struct_size");
    allocator = (qobs_allocator){sizeof allocator, allocate_nothing, NULL, NULL};
    assert_refused(qobs_observer_create(&other, config, &runtime, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "allocator|release");
    allocator.release = release_nothing;
    assert_refused(qobs_observer_create(&other, config, &runtime, &error), QOBS_ERROR_OUT_OF_MEMORY, "memory");
    runtime = (qobs_runtime){sizeof runtime, NULL, &executor};
    assert_refused(qobs_observer_create(&other, config, &runtime, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "executor|struct_size");
    executor = (qobs_executor){sizeof executor, 0, serial, NULL};
    assert_refused(qobs_observer_create(&other, config, &runtime, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "executor|threads");
    assert_null(other);
    qobs_config_destroy(config);
    qobs_observer_destroy(o);
}

/* Every structure callers fill is taken from newer headers that ask for nothing new, and refused where they do. */
static void test_newer(void **state)
{
    qobs_config *config = make_config("llmc.minmax", "base_name=input", NULL);
    static const int64_t shape[] = {2, 2};
    const float data[] = {1, 2, 3, 4};
    float min, max;
    /* Byte by byte: an initializer of one member leaves the bytes after it as they were. */
    later_than(qobs_tensor) value = {.bytes = {0}};
    later_than(qobs_allocator) allocator = {.bytes = {0}};
    later_than(qobs_executor) executor = {.bytes = {0}};
    later_than(qobs_runtime) runtime = {.bytes = {0}};
    later_than(qobs_histogram_options) bins = {.bytes = {0}};
    value.known.data = data, value.known.dtype = QOBS_F32, value.known.ndim = 2, value.known.shape = shape;
    allocator.known.allocate = allocate_nothing, allocator.known.release = release_nothing;
    executor.known.threads = 2, executor.known.parallel_for = serial;
    runtime.known.executor = &executor.known;
    bins.known.count = 2, bins.known.max = 1;
    value.known.struct_size = sizeof value;
    allocator.known.struct_size = sizeof allocator;
    executor.known.struct_size = sizeof executor;
    runtime.known.struct_size = sizeof runtime;
    bins.known.struct_size = sizeof bins;
    uint64_t counts[2];
    unsigned char *const last[] = {&value.bytes[sizeof value - 1], &executor.bytes[sizeof executor - 1],
                                   &runtime.bytes[sizeof runtime - 1], &bins.bytes[sizeof bins - 1],
                                   &allocator.bytes[sizeof allocator - 1]};
    static const char *const names[] = {"value", "runtime.executor", "runtime", "options", "runtime.allocator"};
    for (size_t i = 0; i <= 5; i++) {
        if (i > 0)
            *last[i - 1] = 1;
        if (i == 5)
            runtime.known.allocator = &allocator.known;
        char words[64];
        snprintf(words, sizeof words, "%s: has a field|must be 0", i > 0 ? names[i - 1] : "");
#define minmax_now() call_minmax(config, &value.known, NULL, &min, &max, NULL, &runtime.known, &error)
#define histogram_now()                                                                                                \
    call_histogram(config, &value.known, NULL, &bins.known, counts, NULL, NULL, NULL, &runtime.known, &error)
        if (i == 0) {
            assert_ok(minmax_now());
            assert_ok(histogram_now());
        } else {
            if (i != 4)
                assert_refused(minmax_now(), QOBS_ERROR_UNSUPPORTED, words);
            assert_refused(histogram_now(), QOBS_ERROR_UNSUPPORTED, words);
            *last[i - 1] = 0;
        }
    }
    assert_true(min == 1 && max == 4);
    qobs_config_destroy(config);
}

/* Out structures are filled as far as the caller knows them. */
static void test_filled(void **state)
{
    static const int64_t shape[] = {2, 2};
    const float data[] = {1, 2, 3, 4};
    const qobs_tensor value = tensor_of(QOBS_F32, 2, shape, data);
    const qobs_histogram_options bins = {.struct_size = sizeof bins, .count = 2};
    qobs_config *config = make_config("llmc.mse", "", NULL);
    qobs_observer *o = make("llmc.mse", "");
    assert_ok(qobs_observer_observe(o, &value, NULL, &error));
    float min, max;
    uint64_t bin[2];
    later_than(qobs_counts) counts;
    later_than(qobs_result) result;
    later_than(qobs_search_report) report;
    const size_t sizes[] = {offsetof(qobs_counts, tokens), sizeof(qobs_counts) - 8, sizeof(qobs_counts), sizeof counts};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) { /* the first header had no counts of tokens */
        for (int which = 0; which < 3; which++) {
            memset(&counts, 0xa5, sizeof counts);
            counts.known.struct_size = sizes[i];
            if (which == 0)
                assert_ok(qobs_observer_counts(o, &counts.known, &error));
            else if (which == 1)
                assert_ok(call_minmax(config, &value, NULL, &min, &max, &counts.known, NULL, &error));
            else
                assert_ok(call_histogram(config, &value, NULL, &bins, bin, NULL, NULL, &counts.known, NULL, &error));
            assert_int_equal(counts.known.struct_size, sizes[i]);
            assert_int_equal(counts.known.elements, 4);
            assert_int_equal(counts.known.nan + counts.known.inf, 0);
            const size_t end = sizes[i] < sizeof counts.known ? sizes[i] : sizeof counts.known;
            for (size_t k = end; k < sizeof counts; k++)
                assert_int_equal(counts.bytes[k], 0xa5);
        }
    }
    memset(&result, 0xa5, sizeof result);
    result.known.struct_size = sizeof result;
    assert_ok(qobs_observer_result_find(o, "scale", &result.known, &error));
    assert_int_equal(result.known.size, 4);
    assert_int_equal(result.known.struct_size, sizeof result);
    memset(&report, 0xa5, sizeof report);
    report.known.struct_size = sizeof report;
    assert_ok(qobs_observer_search_report(o, &report.known, &error));
    assert_true(report.known.error >= 0 && report.known.struct_size == sizeof report);
    for (size_t k = 0; k < 16; k++)
        assert_true(result.bytes[sizeof(qobs_result) + k] == 0xa5 &&
                    report.bytes[sizeof(qobs_search_report) + k] == 0xa5);
    report.known.struct_size = sizeof report.known - 1;
    assert_refused(qobs_observer_search_report(o, &report.known, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "report|struct_size");
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
}

/* ---- Bytes that a call does not set ------------------------------------------------------------------------------ */

/* Structures that the calls below fill, for one observer and a quantizer. */
struct filled {
    qobs_counts counts, of_minmax, of_histogram, of_run;
    qobs_search_report report, of_search;
    qobs_config_needs needs;
    qobs_qparam_layout layout;
    qobs_setting_info info[64];
    qobs_result result[64], found;
    qobs_quantized_layout quantized;
    qobs_gguf_type gguf;
    qobs_range range;
    qobs_round_report rounded;
};

/* Leaves a byte in all of the stack that the next call uses. */
__attribute__((noinline)) static void poison_stack(int byte)
{
    volatile unsigned char stack[1 << 16];
    for (size_t i = 0; i < sizeof stack; i++)
        stack[i] = (unsigned char)byte;
}

#define FILL(member, call)                                                                                             \
    do {                                                                                                               \
        (member).struct_size = sizeof(member);                                                                         \
        poison_stack(byte);                                                                                            \
        assert_ok(call);                                                                                               \
    } while (0)

static void fill_of_observer(struct filled *f, int byte)
{
    const float data[] = {1, 2, 3, 4};
    const qobs_tensor value = tensor(QOBS_F32, data, 2, 2);
    qobs_observer *o = make("llmc.mse", "");
    qobs_config *config = make_config("llmc.mse", "", NULL);
    const qobs_histogram_options bins = {.struct_size = sizeof bins, .count = 2};
    uint64_t bin[2];
    float min, max;
    assert_ok(qobs_observer_observe(o, &value, NULL, &error));
    FILL(f->counts, qobs_observer_counts(o, &f->counts, &error));
    FILL(f->of_minmax, call_minmax(config, &value, NULL, &min, &max, &f->of_minmax, NULL, &error));
    FILL(f->of_histogram, call_histogram(config, &value, NULL, &bins, bin, NULL, NULL, &f->of_histogram, NULL, &error));
    FILL(f->report, qobs_observer_search_report(o, &f->report, &error));
    FILL(f->needs, qobs_config_get_needs(config, &f->needs, &error));
    FILL(f->layout, qobs_config_qparam_layout(config, &value, NULL, &f->layout, &error));
    for (size_t i = 0; i < qobs_config_key_count(config); i++)
        FILL(f->info[i], qobs_config_key_info(config, qobs_config_key(config, i), &f->info[i], &error));
    for (size_t i = 0; i < qobs_observer_result_count(o); i++)
        FILL(f->result[i], qobs_observer_result_info(o, i, &f->result[i], &error));
    FILL(f->found, qobs_observer_result_find(o, "scale", &f->found, &error));
    const qobs_search_args search = {.struct_size = sizeof search,
                                     .config = config,
                                     .value = &value,
                                     .min = &min,
                                     .max = &max,
                                     .size = sizeof min,
                                     .report = &f->of_search};
    FILL(f->of_search, qobs_search(&search, &error));
    qobs_config_destroy(config);
    qobs_observer_destroy(o);
}

static void fill_of_quantizer(struct filled *f, int byte)
{
    const float data[] = {1, 2, 3, 4}, scales[] = {0.25f, 0.5f};
    int8_t codes[4];
    float found[2];
    const qobs_tensor value = tensor(QOBS_F32, data, 2, 2), scale = tensor(QOBS_F32, scales, 2, 1),
                      hessian = tensor(QOBS_F32, ((const float[]){2, 1, 1, 2}), 1, 2, 2);
    qobs_config *config = make_config("llmc.memoryless_minmax", "num_bits=4;strategy=channel", NULL);
    qobs_config *optimal = make_config("qobs.local_hessian", "num_bits=4", NULL);
    qobs_quantizer *quantizer = NULL;
    const qobs_quantizer_args args = {
        .struct_size = sizeof args, .config = config, .dtype = QOBS_F32, .columns = 2, .dynamic = 1};
    assert_ok(qobs_quantizer_create(&quantizer, &args, &error));
    FILL(f->quantized, qobs_quantizer_layout(quantizer, 2, &f->quantized, &error));
    FILL(f->gguf, qobs_gguf_describe_type("Q4_K", &f->gguf, &error));
    const qobs_quantizer_run_args run = {.struct_size = sizeof run,
                                         .rows = 2,
                                         .value = data,
                                         .codes = codes,
                                         .codes_size = sizeof codes,
                                         .scale = found,
                                         .scale_size = sizeof found,
                                         .counts = &f->of_run};
    FILL(f->of_run, qobs_quantizer_run(quantizer, &run, &error));
    const qobs_round_args round = {.struct_size = sizeof round,
                                   .config = optimal,
                                   .value = &value,
                                   .scale = &scale,
                                   .hessian = &hessian,
                                   .hessian_count = 1,
                                   .codes = codes,
                                   .codes_size = sizeof codes,
                                   .report = &f->rounded};
    FILL(f->rounded, qobs_round_codes(&round, &error));
    qobs_quantizer_destroy(quantizer);
    qobs_config_destroy(optimal);
    qobs_config_destroy(config);
}

static void fill_of_histogram(struct filled *f, int byte)
{
    const float counts[] = {1, 5, 2, 1}, edges[] = {0, 1, 2, 3, 4};
    const qobs_tensor histogram = tensor(QOBS_F32, counts, 4), bin_edges = tensor(QOBS_F32, edges, 5);
    qobs_config *config = make_config("quark.PerTensorPercentileObserver", "", NULL);
    const qobs_range_args args = {.struct_size = sizeof args,
                                  .config = config,
                                  .histogram = &histogram,
                                  .bin_edges = &bin_edges,
                                  .percentile = 90};
    FILL(f->range, qobs_range_by_percentile(&args, &f->range, &error));
    qobs_config_destroy(config);
}

/* The bytes that a call leaves in the caller's structure do not depend on the stack: no padding, nothing behind the
 * ends of texts or of shapes. */
static void test_no_stack(void **state)
{
    static struct filled filled[2];
    for (int i = 0; i < 2; i++) {
        fill_of_observer(&filled[i], i ? 0xaa : 0x55);
        fill_of_quantizer(&filled[i], i ? 0xaa : 0x55);
        fill_of_histogram(&filled[i], i ? 0xaa : 0x55);
    }
#define SAME(member) assert_memory_equal(&filled[0].member, &filled[1].member, sizeof filled[0].member)
    SAME(counts);
    SAME(of_minmax);
    SAME(of_histogram);
    SAME(of_run);
    SAME(report);
    SAME(of_search);
    SAME(needs);
    SAME(layout);
    SAME(info);
    SAME(result);
    SAME(found);
    SAME(quantized);
    SAME(range);
    SAME(rounded);
#undef SAME
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version), cmocka_unit_test(test_rules),  cmocka_unit_test(test_structures),
        cmocka_unit_test(test_newer),   cmocka_unit_test(test_filled), cmocka_unit_test(test_no_stack),
    };
    return cmocka_run_group_tests_name("stability", tests, NULL, NULL) != 0;
}
