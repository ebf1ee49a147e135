/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* threads */
#endif

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test_io.h"

static size_t file_size(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return (size_t)status.st_size;
}

static void test_round_trip(void **state)
{
    static const enum file_dtype dtypes[] = {FILE_F32,  FILE_BF16,    FILE_F16,     FILE_F64,    FILE_I64, FILE_I32,
                                             FILE_I16,  FILE_I8,      FILE_U8,      FILE_U16,    FILE_U32, FILE_U64,
                                             FILE_BOOL, FILE_F8_E4M3, FILE_F8_E5M2, FILE_F8_E8M0};
    struct fail f;
    struct st_writer w = {0};
    const char *dir = io_directory("round"), *path = io_path("round/out.safetensors");
    unsigned char data[5 * 7 * 8];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7);
    for (int i = 0; i < 16; i++) {
        char name[20];
        snprintf(name, sizeof name, "t.%d", 15 - i);
        assert_int_equal(st_writer_add(&w, name, dtypes[i], 2, IO_DIMS(5, 7), &f), 0);
    }
    const char *odd = "a \"b\" \\ \t\x7f \xe2\x82\xac";
    assert_int_equal(st_writer_add(&w, odd, FILE_F64, 0, NULL, &f), 0);
    assert_int_equal(st_writer_add(&w, "none", FILE_F64, 3, IO_DIMS(2, 0, 3), &f), 0);
    assert_int_equal(st_writer_metadata(&w, "format", "qobs", &f), 0);
    assert_int_equal(st_writer_metadata(&w, odd, odd, &f), 0);
    assert_int_equal(st_writer_begin(&w, path, &f), 0);
    assert_int_equal(w.data_start % 8, 0);
    assert_int_equal(io_entries(dir), 1);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(w.output.temporary, F_OK), 0);
    for (size_t i = 16; i-- > 0;) {
        const size_t bytes = 35 * dtype_size(dtypes[i]), half = bytes / 2;
        assert_int_equal(st_writer_put(&w, i, half, data + half, bytes - half, &f), 0);
        assert_int_equal(st_writer_put(&w, i, 0, data, half, &f), 0);
    }
    assert_int_equal(st_writer_put(&w, 16, 0, data, 8, &f), 0);
    assert_int_equal(st_writer_put(&w, 17, 0, data, 0, &f), 0);
    assert_int_equal(st_writer_finish(&w, &f), 0);
    st_writer_abort(&w);
    assert_int_equal(io_entries(dir), 1);

    struct st_file file;
    assert_int_equal(st_open(&file, path, &f), 0);
    assert_int_equal(file.count, 18);
    uint64_t at = 0;
    for (int i = 0; i < 16; i++) {
        char name[20];
        snprintf(name, sizeof name, "t.%d", 15 - i);
        const struct st_tensor *t = st_find(&file, name);
        assert_int_equal(t->dtype, dtypes[i]);
        assert_int_equal(t->ndim, 2);
        assert_int_equal(t->shape[1], 7);
        assert_int_equal(t->begin, at); /* in the order of their declaration */
        at = t->end;
        assert_memory_equal(t->data, data, t->end - t->begin);
    }
    assert_int_equal(st_find(&file, odd)->ndim, 0);
    assert_memory_equal(st_find(&file, odd)->data, data, 8);
    assert_int_equal(st_find(&file, "none")->ndim, 3);
    assert_int_equal(file.metadata_count, 2);
    assert_string_equal(file.metadata[0].value, "qobs");
    assert_string_equal(file.metadata[1].name, odd);
    assert_string_equal(file.metadata[1].value, odd);
    st_close(&file);
}

static void test_empty(void **state)
{
    struct fail f;
    struct st_writer w = {0};
    struct st_file file;
    assert_int_equal(st_writer_begin(&w, io_path("empty"), &f), 0);
    assert_int_equal(st_writer_finish(&w, &f), 0);
    assert_int_equal(file_size(io_path("empty")), 16);
    assert_int_equal(st_open(&file, io_path("empty"), &f), 0);
    assert_int_equal(file.count, 0);
    st_close(&file);
}

/* The bytes of a file from another writer. */
static void test_exact_bytes(void **state)
{
    struct fail f;
    struct st_writer w = {0};
    struct mapped map;
    io_add_four(&w);
    assert_int_equal(st_writer_metadata(&w, "k", "v", &f), 0);
    assert_int_equal(st_writer_begin(&w, io_path("exact"), &f), 0);
    assert_int_equal(st_writer_put(&w, 0, 0, "abcd", 4, &f), 0);
    assert_int_equal(st_writer_finish(&w, &f), 0);
    const char expected[] = "\120\0\0\0\0\0\0\0{\"__metadata__\":{\"k\":\"v\"},"
                            "\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}  abcd";
    assert_int_equal(mapped_open(&map, io_path("exact"), &f), 0);
    assert_int_equal(map.size, sizeof expected - 1);
    assert_memory_equal(map.data, expected, map.size);
    mapped_close(&map);
}

static void test_target(void **state)
{
    struct fail f;
    struct st_writer w = {0};
    struct stat status;
    const char *dir = io_directory("target"), *path = io_bytes("target/out", "old", 3);

    io_add_four(&w); /* abort leaves the old file and no other */
    assert_int_equal(st_writer_begin(&w, path, &f), 0);
    assert_int_equal(st_writer_put(&w, 0, 0, "abcd", 4, &f), 0);
    assert_int_equal(file_size(path), 3);
    assert_int_equal(io_entries(dir), 2);
    st_writer_abort(&w);
    st_writer_abort(&w);
    assert_int_equal(file_size(path), 3);
    assert_int_equal(io_entries(dir), 1);

    io_add_four(&w); /* finish replaces the file and keeps its mode */
    assert_int_equal(chmod(path, 0600), 0);
    const mode_t mask = umask(0027);
    assert_int_equal(st_writer_begin(&w, path, &f), 0);
    umask(mask);
    assert_int_equal(st_writer_put(&w, 0, 0, "abcd", 4, &f), 0);
    assert_int_equal(st_writer_finish(&w, &f), 0);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_true(status.st_size > 64);
    assert_int_equal(io_entries(dir), 1);

    io_add_four(&w); /* through a symbolic link */
    assert_int_equal(symlink("out", io_path("target/link")), 0);
    const size_t before = file_size(path);
    assert_int_equal(st_writer_metadata(&w, "more", "bytes", &f), 0);
    assert_int_equal(st_writer_begin(&w, io_path("target/link"), &f), 0);
    assert_int_equal(st_writer_put(&w, 0, 0, "abcd", 4, &f), 0);
    assert_int_equal(st_writer_finish(&w, &f), 0);
    assert_int_equal(lstat(io_path("target/link"), &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_true(file_size(path) > before);
    assert_int_equal(io_entries(dir), 2);

    char name[300] = "target/"; /* the longest name a file can have */
    memset(name + 7, 'n', 255);
    io_add_four(&w);
    assert_int_equal(st_writer_begin(&w, io_path(name), &f), 0);
    assert_int_equal(st_writer_put(&w, 0, 0, "abcd", 4, &f), 0);
    assert_int_equal(st_writer_finish(&w, &f), 0);
    assert_int_equal(io_entries(dir), 3);

    assert_int_equal(chdir(dir), 0); /* a name without a directory */
    io_add_four(&w);
    assert_int_equal(st_writer_begin(&w, "plain", &f), 0);
    assert_int_equal(io_entries(dir), 4);
    st_writer_abort(&w);
    assert_int_equal(chdir("/"), 0);
}

static void test_two_writers(void **state)
{
    struct fail f;
    struct st_writer a = {0}, b = {0};
    const char *path = io_path("two");
    io_add_four(&a);
    io_add_four(&b);
    assert_int_equal(st_writer_begin(&a, path, &f), 0);
    assert_int_equal(st_writer_begin(&b, path, &f), 0);
    assert_int_equal(st_writer_put(&a, 0, 0, "aaaa", 4, &f), 0);
    assert_int_equal(st_writer_put(&b, 0, 0, "bbbb", 4, &f), 0);
    assert_int_equal(st_writer_finish(&b, &f), 0);
    assert_int_equal(st_writer_finish(&a, &f), 0);
    struct st_file file;
    assert_int_equal(st_open(&file, path, &f), 0);
    assert_memory_equal(file.tensors[0].data, "aaaa", 4);
    st_close(&file);
}

#define THREADS 4
#define ROWS 1000

struct share {
    struct st_writer *w;
    size_t first;
};

static void *put_rows(void *argument)
{
    const struct share *share = argument;
    struct fail f;
    for (size_t i = share->first; i < ROWS; i += THREADS) {
        const uint64_t row[4] = {i, i + 1, i + 2, i + 3};
        if (st_writer_put(share->w, 0, i * sizeof row, row, sizeof row, &f) != 0)
            return share->w;
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct fail f;
    struct st_writer w = {0};
    struct share shares[THREADS];
    pthread_t threads[THREADS];
    assert_int_equal(st_writer_add(&w, "w", FILE_U64, 2, IO_DIMS(ROWS, 4), &f), 0);
    assert_int_equal(st_writer_begin(&w, io_path("threads"), &f), 0);
    for (size_t i = 0; i < THREADS; i++) {
        shares[i] = (struct share){.w = &w, .first = i};
        assert_int_equal(pthread_create(&threads[i], NULL, put_rows, &shares[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(st_writer_finish(&w, &f), 0);
    struct st_file file;
    assert_int_equal(st_open(&file, io_path("threads"), &f), 0);
    const uint64_t *rows = file.tensors[0].data;
    for (size_t i = 0; i < 4 * (size_t)ROWS; i++)
        assert_int_equal(rows[i], i / 4 + i % 4);
    st_close(&file);
}

int io_test_writer(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_empty),       cmocka_unit_test(test_exact_bytes),
        cmocka_unit_test(test_target),     cmocka_unit_test(test_two_writers), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("writer", tests, io_setup, io_teardown);
}
