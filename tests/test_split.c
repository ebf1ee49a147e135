/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The splitter of work for threads: parts cover all units once, in order, and their number obeys the limits. */
#include "base/split.h"
#include "unit.h"

static void in_turn(void *context, void (*task)(void *, size_t), void *argument, size_t count)
{
    for (size_t i = count; i-- > 0;)
        task(argument, i);
}

static struct split split_for(size_t threads, const struct split_rule *rule, int64_t units, int64_t work,
                              int64_t private_work)
{
    const qobs_executor executor = {.struct_size = sizeof executor, .parallel_for = in_turn, .threads = threads};
    const struct runtime runtime = {.executor = &executor};
    return qobs_split(&runtime, rule, units, work, private_work);
}

static void limits(void **state)
{
    const struct split_rule rule = {.min_total = 200, .min_part = 100, .parts_per_thread = 4, .max_parts = 64};
    const struct runtime alone = {0};
    assert_int_equal(qobs_split(&alone, &rule, 1000, 1 << 20, 0).parts, 1);
    assert_int_equal(split_for(1, &rule, 1000, 1 << 20, 0).parts, 1);
    assert_int_equal(split_for(8, &rule, 1000, 1 << 20, 0).parts, 32);
    assert_int_equal(split_for(32, &rule, 1000, 1 << 20, 0).parts, 64);
    for (int bits = 59; bits < 64; bits++) /* no product of threads and parts wraps */
        assert_int_equal(split_for((size_t)1 << bits, &rule, 1000, 1 << 20, 0).parts, 64);
    assert_int_equal(split_for(SIZE_MAX, &rule, 1000, 1 << 20, 257).parts, 64);
    assert_int_equal(split_for(8, &rule, 1000, 199, 0).parts, 1);
    assert_int_equal(split_for(8, &rule, 1000, 200, 0).parts, 2);
    assert_int_equal(split_for(8, &rule, 1000, 799, 0).parts, 7);
    assert_int_equal(split_for(8, &rule, 3, 1 << 20, 0).parts, 3);
    assert_int_equal(split_for(8, &rule, 0, 1 << 20, 0).parts, 1);
    assert_int_equal(split_for(8, &rule, 1000, 1 << 20, 256).parts, 32);
    assert_int_equal(split_for(8, &rule, 1000, 1 << 20, 257).parts, 8);
}

static void covers(const struct split *split)
{
    int64_t previous = INT64_MAX, end = 0;
    assert_int_equal(qobs_split_begin(split, 0), 0);
    for (int64_t part = 0; part < split->parts; part++) {
        const int64_t from = qobs_split_begin(split, part), to = qobs_split_begin(split, part + 1);
        assert_true(from == end && to >= from);
        assert_true(to > from || split->shrinking || split->units < split->parts);
        assert_true(!split->shrinking || split->units < 2 * split->parts || to - from - 1 <= previous);
        previous = to - from;
        end = to;
    }
    assert_true(end == split->units);
}

static void boundaries(void **state)
{
    static const int64_t units[] = {0, 1, 2, 15, 16, 31, 32, 33, 1000, 4097, INT64_MAX / 3, INT64_MAX};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        for (int64_t parts = 1; parts <= 70; parts++)
            for (int shrinking = 0; shrinking < 2; shrinking++)
                covers(&(struct split){units[i], parts, shrinking});
    /* Half of the parts have three quarters of the units. */
    assert_int_equal(qobs_split_begin(&(struct split){1600, 16, true}, 8), 1200);
    assert_int_equal(qobs_split_begin(&(struct split){1600, 16, false}, 8), 800);
}

struct record {
    int64_t calls, from[64], to[64];
};

static void record_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct record *record = argument;
    record->calls++;
    record->from[part] = from;
    record->to[part] = to;
}

static void runs(void **state)
{
    const qobs_executor executor = {.struct_size = sizeof executor, .parallel_for = in_turn, .threads = 3};
    const struct runtime runtime = {.executor = &executor};
    const struct split split = {1001, 7, true};
    struct record record = {0};
    qobs_split_run(&runtime, &split, record_part, &record);
    assert_int_equal(record.calls, 7);
    for (int64_t part = 0; part < 7; part++) {
        assert_int_equal(record.from[part], qobs_split_begin(&split, part));
        assert_int_equal(record.to[part], qobs_split_begin(&split, part + 1));
    }
}

static void sizes(void **state)
{
    assert_int_equal(qobs_split_size(1000, 10, 1, 1), 100);
    assert_int_equal(qobs_split_size(1001, 10, 1, 1), 101);
    assert_int_equal(qobs_split_size(1001, 10, 1, 16), 112);
    assert_int_equal(qobs_split_size(1001, 10, 512, 64), 512);
    assert_int_equal(qobs_split_size(0, 10, 512, 64), 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits),
        cmocka_unit_test(boundaries),
        cmocka_unit_test(runs),
        cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests_name("split", tests, NULL, NULL);
}
