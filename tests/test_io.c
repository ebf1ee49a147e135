/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* nftw */
#endif

#include <dirent.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test_io.h"
#include "files/text.h"

static char directory[512];

int io_setup(void **state)
{
    const char *parent = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/qobs-test-XXXXXX", parent && *parent ? parent : "/tmp");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status, (void)kind, (void)where;
    return remove(path);
}

int io_teardown(void **state)
{
    return nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

const char *io_path(const char *name)
{
    static char paths[16][1024];
    static size_t next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s%s%s", directory, *name ? "/" : "", name);
    return path;
}

const char *io_bytes(const char *name, const void *data, size_t size)
{
    const char *path = io_path(name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
    return path;
}

static const char *write_parts(const char *name, const unsigned char *start, size_t n, const char *header, size_t pad,
                               size_t data)
{
    const size_t length = strlen(header);
    unsigned char *bytes = malloc(n + length + pad + data + 1);
    assert_non_null(bytes);
    memcpy(bytes, start, n);
    memcpy(bytes + n, header, length);
    memset(bytes + n + length, ' ', pad);
    for (size_t i = 0; i < data; i++)
        bytes[n + length + pad + i] = (unsigned char)i;
    const char *path = io_bytes(name, bytes, n + length + pad + data);
    free(bytes);
    return path;
}

const char *io_st(const char *name, const char *header, size_t data)
{
    const uint64_t length = strlen(header);
    unsigned char start[8];
    memcpy(start, &length, sizeof start);
    return write_parts(name, start, sizeof start, header, 0, data);
}

const char *io_npy(const char *name, const char *header, size_t data)
{
    const size_t pad = (64 - (10 + strlen(header)) % 64) % 64, length = strlen(header) + pad;
    const unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, length & 255, (unsigned char)(length >> 8)};
    return write_parts(name, start, sizeof start, header, pad, data);
}

const char *io_directory(const char *name)
{
    const char *path = io_path(name);
    assert_int_equal(mkdir(path, 0755), 0);
    return path;
}

void io_add_four(struct st_writer *w)
{
    struct fail f;
    assert_int_equal(st_writer_add(w, "w", FILE_U8, 1, IO_DIMS(4), &f), 0);
}

size_t io_entries(const char *path)
{
    size_t n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return n;
}

void io_expect_refusal(int result, const struct fail *f, const char *const *words)
{
    assert_true(result == QOBS_ERROR_INVALID_ARGUMENT || result == QOBS_ERROR_SYSTEM); /* no memory is never at fault here */
    for (; *words; words++)
        if (!strstr(f->message, *words))
            io_stop("'%s' is not in: %s\n", *words, f->message);
}

static void test_fail(void **state)
{
    struct fail f;
    assert_int_equal(fail(&f, "%s: %d", "a", 5), -1);
    assert_string_equal(f.message, "a: 5");
    assert_int_equal(fail(NULL, "%d", 1), -1);
    fail(&f, "%s", "\033[1m \xc3\xa4 \xff \xc2\x9b \x7f\n \xe2\x82\xac");
    assert_string_equal(f.message, "?[1m \xc3\xa4 ? ?? ?? \xe2\x82\xac");
    char text[1024];
    memset(text, 'x', 510);
    strcpy(text + 510, "\xc3\xa4 and more"); /* what follows the longest word stays */
    fail(&f, "%s", text);
    assert_int_equal(strlen(f.message), 511);
    assert_string_equal(f.message + 500, "\xc3\xa4 and more");
    assert_non_null(strstr(f.message, "xxx...xxx"));
    for (size_t i = 0; i < 1000; i += 2)
        memcpy(text + i, "x ", 3);
    fail(&f, "%s", text); /* no word is long enough */
    assert_int_equal(strlen(f.message), 511);
    assert_memory_equal(f.message, text, 511);
    memset(text, ' ', 511);
    strcpy(text + 510, "\xc3\xa4"); /* the end falls within a character */
    fail(&f, "%s", text);
    assert_string_equal(f.message + 509, " ");
    for (size_t start = 0; start < 3; start++) { /* each of three places within a character, at both sides of the gap */
        memset(text, 'x', start);
        for (size_t i = 0; i < 300; i++)
            memcpy(text + start + 3 * i, "\xe2\x82\xac", 4);
        fail(&f, "%s", text);
        assert_null(strchr(f.message, '?'));
        assert_non_null(strstr(f.message, "\x82\xac...\xe2"));
        assert_in_range(strlen(f.message), 506, 511);
    }
}

static void test_utf8(void **state)
{
    static const char *const good[] = {"a",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xef\xbf\xbf",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xc2x",
                                      "\xe0\x9f\xbf",
                                      "\xe1\x80",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(utf8_sequence((const unsigned char *)good[i], strlen(good[i])), strlen(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(utf8_sequence((const unsigned char *)bad[i], strlen(bad[i])), 0);
}

static void test_dtype(void **state)
{
    struct dtype_words words;
    char *rest = words.text;
    int n = FILE_NONE;
    dtypes_describe(ALL_FILE_DTYPES, &words);
    for (char *name; (name = strtok_r(rest, ", ", &rest));) {
        const enum file_dtype dtype = dtype_find(name, strlen(name));
        assert_int_equal(dtype, ++n);
        assert_string_equal(dtype_name(dtype), name);
        assert_in_range(dtype_bits(dtype), 4, 64);
        assert_int_equal(dtype_size(dtype), dtype_bits(dtype) % 8 ? 0 : dtype_bits(dtype) / 8);
    }
    assert_int_equal(n, 22);
    for (int dtype = QOBS_F32; dtype <= QOBS_U8; dtype++)
        assert_int_equal(dtype_in_library(dtype_in_file((qobs_dtype)dtype)), dtype);
    assert_int_equal(dtype_in_file((qobs_dtype)0), FILE_NONE);
    assert_int_equal(dtype_find("f4", 2), FILE_NONE);
    assert_int_equal(dtype_find("F", 1), FILE_NONE);
    assert_int_equal(dtype_find("", 0), FILE_NONE);
    assert_int_equal(dtype_find("F32 ", 3), FILE_F32);
    assert_int_equal(dtype_bits(FILE_F6_E3M2), 6);
    assert_int_equal(dtype_size(FILE_NONE), 0);
    assert_string_equal(dtypes_describe(HALVES_AND_FLOATS, &words), "F32, BF16, F16");
    uint64_t bytes;
    assert_int_equal(tensor_bytes(32, 0, NULL, &bytes), 0);
    assert_int_equal(bytes, 4);
    assert_int_equal(tensor_bytes(8, 2, (int64_t[]){INT64_MAX, 1}, &bytes), 0);
    assert_int_equal(bytes, INT64_MAX);
    assert_int_equal(tensor_bytes(16, 1, (int64_t[]){INT64_MAX}, &bytes), -1);
    assert_int_equal(tensor_bytes(8, 3, (int64_t[]){INT64_MAX, 2, 0}, &bytes), -1);
    assert_int_equal(tensor_bytes(8, 2, (int64_t[]){0, INT64_MAX}, &bytes), 0);
    assert_int_equal(bytes, 0);
    assert_int_equal(tensor_bytes(8, 1, (int64_t[]){-1}, &bytes), -1);
    assert_int_equal(tensor_bytes(4, 2, (int64_t[]){4, 8}, &bytes), 0);
    assert_int_equal(bytes, 16);
    assert_int_equal(tensor_bytes(6, 2, (int64_t[]){4, 3}, &bytes), 0);
    assert_int_equal(bytes, 9);
    assert_int_equal(tensor_bytes(4, 1, (int64_t[]){INT64_MAX - 1}, &bytes), 0);
    assert_int_equal(bytes, INT64_MAX / 2);
    assert_int_equal(tensor_bytes(4, 1, (int64_t[]){3}, &bytes), -1);
    assert_int_equal(tensor_bytes(6, 0, NULL, &bytes), -1);
}

static void test_mapped(void **state)
{
    struct fail f;
    struct mapped map;
    const char *path = io_bytes("three", "abc", 3);
    assert_int_equal(mapped_open(&map, path, &f), 0);
    assert_int_equal(map.size, 3);
    assert_memory_equal(map.data, "abc", 3);
    assert_string_equal(map.path, path);
    mapped_close(&map);
    assert_null(map.data);
    mapped_close(&map);

    path = io_bytes("empty", "", 0);
    assert_int_equal(mapped_open(&map, path, &f), 0);
    assert_int_equal(map.size, 0);
    assert_non_null(map.data);
    mapped_close(&map);

    path = io_path("missing");
    assert_refused(mapped_open(&map, path, &f), &f, path, "No such file");
    mapped_close(&map);
    path = io_path("");
    assert_refused(mapped_open(&map, path, &f), &f, path, "is a directory");
    path = io_path("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(mapped_open(&map, path, &f), &f, path, "is a pipe", "regular file"); /* does not block */
    assert_refused(mapped_open(&map, "/dev/null", &f), &f, "/dev/null", "is a character device");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_dtype),
        cmocka_unit_test(test_mapped),
    };
    int failed = cmocka_run_group_tests_name("io", tests, io_setup, io_teardown);
    failed += io_test_safetensors();
    failed += io_test_changes();
    failed += io_test_writer();
    failed += io_test_writer_refusals();
    failed += io_test_npy();
    failed += io_test_gguf();
    failed += io_test_tensors();
    return failed != 0;
}
