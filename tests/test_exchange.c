/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* States go from machine to machine:
 *
 *   test_exchange write DIRECTORY   saves a state of every preset there
 *   test_exchange read DIRECTORY    loads those that another build has saved; each is byte for byte what this build
 * would have saved, and goes on as if it had never left test_exchange                   the same in memory */
#include "every_preset.h"

enum { ROWS = 6, COLUMNS = 96, BATCHES = 3 };

static const char *directory;
static bool writes;

/* Norm 2 needs no SLEEF, which the other machine may lack. */
static qobs_observer *make_one(const struct every_preset *p)
{
    qobs_config *config = make_config(p->preset, p->settings, NULL);
    qobs_observer *o = NULL;
    qobs_config_set(config, "norm", "2", NULL); /* where there is one */
    assert_ok(qobs_observer_create(&o, config, NULL, &error));
    qobs_config_destroy(config);
    return o;
}

static int observe_one(qobs_observer *o, const struct every_preset *p, uint32_t seed)
{
    float data[ROWS * COLUMNS];
    fill_matrix(data, ROWS * COLUMNS, seed);
    const qobs_tensor value = tensor(QOBS_F32, data, ROWS, COLUMNS);
    if (weighs_columns(p))
        assert_ok(qobs_observer_observe_importance(o, &value, &error));
    return qobs_observer_observe(o, &value, NULL, &error);
}

/* Some take one batch only, and some none. */
static qobs_observer *observed(const struct every_preset *p)
{
    qobs_observer *o = make_one(p);
    for (uint32_t batch = 0; batch < BATCHES; batch++)
        if (observe_one(o, p, batch) != QOBS_OK)
            break;
    return o;
}

static FILE *open_state(size_t index, const char *mode)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%zu.state", directory, index);
    FILE *file = fopen(path, mode);
    if (!file)
        fail_msg("%s cannot be opened", path);
    return file;
}

static void write_state(size_t index, const unsigned char *bytes, size_t size)
{
    FILE *file = open_state(index, "wb");
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static unsigned char *read_state(size_t index, size_t expected)
{
    unsigned char *bytes = malloc(expected + 1);
    FILE *file = open_state(index, "rb");
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, expected + 1, file), expected);
    fclose(file);
    return bytes;
}

static void expect_same_state(const qobs_observer *o, const unsigned char *bytes, size_t size,
                              const struct every_preset *p)
{
    size_t own_size;
    unsigned char *own = saved_state(o, &own_size);
    if (own_size != size || memcmp(own, bytes, size) != 0)
        fail_msg("%s: differs", p->preset);
    free(own);
}

static void test_exchange(void **state)
{
    for (size_t i = 0; preset_at(i); i++) {
        const struct every_preset *p = preset_at(i);
        qobs_observer *o = observed(p), *back = NULL;
        size_t size;
        unsigned char *bytes = saved_state(o, &size);
        if (writes)
            write_state(i, bytes, size);
        if (directory) {
            free(bytes);
            bytes = read_state(i, size);
        }
        expect_same_state(o, bytes, size, p);
        assert_ok(qobs_observer_load(&back, bytes, size, NULL, &error));
        expect_same_state(back, bytes, size, p);
        assert_int_equal(observe_one(o, p, BATCHES), observe_one(back, p, BATCHES));
        free(bytes);
        bytes = saved_state(o, &size);
        expect_same_state(back, bytes, size, p);
        free(bytes);
        qobs_observer_destroy(back);
        qobs_observer_destroy(o);
    }
}

int main(int argc, char **argv)
{
    if (argc != 1 && (argc != 3 || (strcmp(argv[1], "write") != 0 && strcmp(argv[1], "read") != 0))) {
        fprintf(stderr, "usage: test_exchange [write DIRECTORY | read DIRECTORY]\n");
        return 2;
    }
    directory = argc == 3 ? argv[2] : NULL;
    writes = directory && strcmp(argv[1], "write") == 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exchange)};
    return cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
}
