/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Saved states that somebody has changed, checksum and all: each is refused, or is an observer like any other. Never is
 * more memory asked for than in proportion to the state's own size. */
#include "every_preset.h"
#include "base/codec.h"
#include "repeats.h"

enum { ROWS = 8, COLUMNS = 96, HASH = 8, LEAST = 64 << 10, TIMES = 8 };

static float batches[2][ROWS * COLUMNS];

/* Memory that is asked for until `most` is; what a call asks for in all. */
struct memory {
    size_t asked, most;
};

static void *allocate(void *context, size_t size)
{
    struct memory *m = context;
    m->asked = size > SIZE_MAX - m->asked ? SIZE_MAX : m->asked + size;
    return m->asked <= m->most ? malloc(size) : NULL;
}

static void release(void *context, void *memory, size_t size)
{
    (void)context, (void)size;
    free(memory);
}

static void put_hash(unsigned char *bytes, size_t size)
{
    const uint64_t h = qobs_hash(bytes, size - HASH);
    for (int i = 0; i < HASH; i++)
        bytes[size - HASH + (size_t)i] = (unsigned char)(h >> 8 * i);
}

/* Everything that can be done with an observer. Statuses are of no interest, memory is: the sanitizers look at it. */
static void use(qobs_observer *o)
{
    static unsigned char out[1 << 16];
    for (size_t i = 0; i < qobs_observer_result_count(o) && i < 40; i++) {
        qobs_result result = {.struct_size = sizeof result};
        if (qobs_observer_result_info(o, i, &result, &error) == QOBS_OK && result.size <= sizeof out)
            qobs_observer_read(o, result.name, out, result.size, &error);
    }
    size_t size;
    unsigned char *bytes = saved_state(o, &size);
    free(bytes);
    observe(o, ROWS, COLUMNS, batches[1]);
}

static bool try(const unsigned char *bytes, size_t size, const char *what, size_t at)
{
    struct memory m = {.most = TIMES * size + LEAST};
    const qobs_allocator allocator = {sizeof allocator, allocate, release, &m};
    const qobs_runtime runtime = {sizeof runtime, &allocator, NULL};
    qobs_observer *o = NULL;
    const int status = qobs_observer_load(&o, bytes, size, &runtime, &error);
    if (m.asked > m.most || (status == QOBS_OK) != (o != NULL) || (status != QOBS_OK && error.message[0] == '\0'))
        fail_msg("%s, changed at byte %zu: status %d (%s), asked for %zu bytes", what, at, status, error.message,
                 m.asked);
    static size_t loaded;
    if (o && loaded++ % 16 == 0) {
        m = (struct memory){.most = (size_t)1 << 26}; /* settings decide what a batch takes */
        use(o);
    }
    qobs_observer_destroy(o);
    return status == QOBS_OK;
}

static void change_everything(const struct every_preset *p)
{
    static const unsigned char values[] = {0, 1, 0x7f, 0xff};
    qobs_observer *o = make(p->preset, p->settings);
    const qobs_tensor value = tensor(QOBS_F32, batches[0], ROWS, COLUMNS);
    if (weighs_columns(p))
        assert_ok(qobs_observer_observe_importance(o, &value, &error));
    assert_ok(observe(o, ROWS, COLUMNS, batches[0]));
    size_t size, refused = 0;
    unsigned char *bytes = saved_state(o, &size), *changed = malloc(size);
    assert_non_null(changed);
    assert_true(try(bytes, size, p->preset, 0));
    const size_t step = size / (size_t)repeats(25, 200) + 1; /* the numbers at the end are many and alike */
    for (size_t i = 0; i < size - HASH; i += i < 300 ? (size_t)repeats(7, 3) : step)
        for (size_t k = 0; k < sizeof values; k++)
            for (size_t width = 1; width <= 8 && i + width <= size - HASH; width += 7) {
                memcpy(changed, bytes, size);
                memset(changed + i, values[k], width);
                put_hash(changed, size);
                refused += !try(changed, size, p->preset, i);
            }
    assert_true(refused > 100);                             /* names and sizes, at the least */
    for (size_t n = 0; n < size; n += n < 300 ? 1 : step) { /* cut off, with the rest in order */
        unsigned char *cut = malloc(n + 1);                 /* so that reading beyond is seen */
        assert_non_null(cut);
        memcpy(cut, bytes, n);
        for (size_t i = 0; n >= 16 + HASH && i < 8; i++)
            cut[8 + i] = (unsigned char)(n >> 8 * i);
        if (n >= 16 + HASH)
            put_hash(cut, n);
        assert_false(try(cut, n, p->preset, n));
        free(cut);
    }
    free(changed);
    free(bytes);
    qobs_observer_destroy(o);
}

static void test_states(void **state)
{
    for (uint32_t i = 0; i < 2; i++)
        fill_matrix(batches[i], ROWS * COLUMNS, i);
    for (size_t i = 0; i < EVERY_PRESET; i++)
        change_everything(&every_preset[i]);
}

/* A message with a value of the state reaches terminals. */
static void test_control_characters(void **state)
{
    static const char setting[] = "base_name=input", escape[] = "in\033[m";
    qobs_observer *o = make("llmc.memoryless_minmax", "base_name=input;strategy=tensor"), *loaded = NULL;
    assert_ok(observe(o, ROWS, COLUMNS, batches[0]));
    size_t size, at = 0;
    unsigned char *bytes = saved_state(o, &size);
    while (at + sizeof setting < size && memcmp(bytes + at, setting, sizeof setting - 1) != 0)
        at++;
    assert_true(at + sizeof setting < size);
    memcpy(bytes + at + strlen("base_name="), escape, sizeof escape - 1);
    put_hash(bytes, size);
    assert_int_not_equal(qobs_observer_load(&loaded, bytes, size, NULL, &error), QOBS_OK);
    assert_null(loaded);
    assert_non_null(strstr(error.message, "in?[m"));
    assert_null(strchr(error.message, '\033'));
    free(bytes);
    qobs_observer_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_states), cmocka_unit_test(test_control_characters)};
    return cmocka_run_group_tests_name("untrusted", tests, NULL, NULL) != 0;
}
