/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* SIGXFSZ */
#endif

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test_io.h"

static void refuse_begin(const char *path, const char *why)
{
    struct fail f;
    struct st_writer w = {0};
    io_add_four(&w);
    assert_refused(st_writer_begin(&w, path, &f), &f, path, why);
    assert_null(w.tensors);
    st_writer_abort(&w);
}

static void test_refuses_targets(void **state)
{
    const char *dir = io_directory("refused");
    refuse_begin(io_path("refused/none/out"), "No such file");
    io_bytes("refused/file", "", 0);
    refuse_begin(io_path("refused/file/out"), "Not a directory");
    refuse_begin(dir, "is a directory");
    refuse_begin(io_path("refused/"), "no name for a file");
    refuse_begin("", "no name for a file");
    refuse_begin("/dev/null", "not a regular file");
    assert_int_equal(symlink("nowhere", io_path("refused/dangling")), 0);
    refuse_begin(io_path("refused/dangling"), "No such file");
    assert_int_equal(io_entries(dir), 2);
    if (geteuid() != 0) { /* root may write everywhere */
        assert_int_equal(chmod(dir, 0500), 0);
        refuse_begin(io_path("refused/out"), "Permission denied");
        assert_int_equal(chmod(dir, 0700), 0);
    }
    /* A file-size limit. */
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){.rlim_cur = 1 << 20, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    struct fail f;
    struct st_writer w = {0};
    assert_int_equal(st_writer_add(&w, "w", FILE_U8, 1, IO_DIMS(1 << 20), &f), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const int result = st_writer_begin(&w, io_path("refused/large"), &f);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_refused(result, &f, "refused/large", "File too large");
    st_writer_abort(&w);
    assert_int_equal(io_entries(dir), 2);
}

static void test_refuses_tensors(void **state)
{
    struct fail f;
    struct st_writer w = {0};
    assert_refused(st_writer_add(&w, "\xff", FILE_F32, 0, NULL, &f), &f, "UTF-8");
    assert_refused(st_writer_add(&w, "__metadata__", FILE_F32, 0, NULL, &f), &f, "__metadata__");
    assert_refused(st_writer_add(&w, "w", FILE_F32, 9, IO_DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1), &f), &f, "9 dimensions",
                   "0 to 8");
    assert_refused(st_writer_add(&w, "w", FILE_F32, -1, NULL, &f), &f, "-1 dimensions");
    assert_refused(st_writer_add(&w, "w", FILE_F32, 2, IO_DIMS(3, -2), &f), &f, "tensor 'w'", "shape[1] is -2");
    assert_refused(st_writer_add(&w, "w", FILE_F32, 1, IO_DIMS((int64_t)1 << 53), &f), &f,
                   "shape[0] is 9007199254740992");
    assert_refused(st_writer_add(&w, "w", FILE_F32, 2, IO_DIMS((int64_t)1 << 40, (int64_t)1 << 40), &f), &f,
                   "[1099511627776,1099511627776] of F32", "2^53 - 1 bytes");
    assert_int_equal(st_writer_add(&w, "w", FILE_U8, 1, IO_DIMS((int64_t)1 << 52), &f), 0);
    assert_refused(st_writer_add(&w, "x", FILE_U8, 1, IO_DIMS((int64_t)1 << 52), &f), &f, "tensor 'x'",
                   "2^53 - 1 bytes");
    assert_refused(st_writer_metadata(&w, "\xff", "v", &f), &f, "UTF-8");
    assert_refused(st_writer_metadata(&w, "k", "\xff", &f), &f, "metadata 'k'", "UTF-8");
    assert_int_equal(st_writer_metadata(&w, "k", "v", &f), 0);
    assert_refused(st_writer_metadata(&w, "k", "v", &f), &f, "metadata 'k'", "there already");
    st_writer_abort(&w);

    io_add_four(&w);
    assert_int_equal(st_writer_add(&w, "x", FILE_F32, 0, NULL, &f), 0);
    io_add_four(&w);
    assert_refused(st_writer_begin(&w, io_path("twice"), &f), &f, "twice", "tensor 'w' would occur twice");
    assert_int_equal(access(io_path("twice"), F_OK), -1);
}

static void test_refuses_puts(void **state)
{
    struct fail f;
    struct st_writer w = {0};
    const char *dir = io_directory("puts"), *path = io_path("puts/out");
    assert_refused(st_writer_put(&w, 0, 0, "a", 1, &f), &f, "st_writer_begin");
    assert_refused(st_writer_finish(&w, &f), &f, "st_writer_begin");

    static const struct {
        size_t index, bytes;
        uint64_t offset;
        const char *words;
    } bad[] = {
        {1, 1, 0, "tensor 1 of 1"},          {0, 5, 0, "tensor 'w': 5 bytes at 0 do not fit into its 4"},
        {0, 1, 4, "1 bytes at 4"},           {0, 1, UINT64_MAX, "18446744073709551615"},
        {0, SIZE_MAX, 1, "at 1 do not fit"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        io_add_four(&w);
        assert_int_equal(st_writer_begin(&w, path, &f), 0);
        assert_refused(st_writer_put(&w, bad[i].index, bad[i].offset, "", bad[i].bytes, &f), &f, path, bad[i].words);
        assert_int_equal(st_writer_put(&w, 0, 0, "abcd", 4, &f), 0);
        assert_refused(st_writer_finish(&w, &f), &f, path, "a write failed");
        assert_int_equal(io_entries(dir), 0);
    }

    io_add_four(&w); /* begin is called twice */
    assert_int_equal(st_writer_begin(&w, path, &f), 0);
    assert_refused(st_writer_begin(&w, path, &f), &f, "called before");
    /* data is missing */
    assert_int_equal(st_writer_put(&w, 0, 1, "abc", 3, &f), 0);
    assert_refused(st_writer_finish(&w, &f), &f, path, "3 bytes of data came", "have 4");
    assert_int_equal(io_entries(dir), 0);

    io_add_four(&w); /* a system error */
    assert_int_equal(st_writer_begin(&w, path, &f), 0);
    const int closed = open("/dev/null", O_RDONLY);
    assert_int_equal(dup2(closed, w.output.fd), w.output.fd);
    close(closed);
    assert_refused(st_writer_put(&w, 0, 0, "abcd", 4, &f), &f, path, "tensor 'w'", "Bad file descriptor");
    assert_refused(st_writer_finish(&w, &f), &f, "a write failed");
    assert_int_equal(io_entries(dir), 0);

    io_add_four(&w); /* the target has become a directory */
    assert_int_equal(st_writer_begin(&w, path, &f), 0);
    assert_int_equal(st_writer_put(&w, 0, 0, "abcd", 4, &f), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_refused(st_writer_finish(&w, &f), &f, path, "cannot rename");
    assert_int_equal(io_entries(dir), 1);
}

int io_test_writer_refusals(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refuses_targets),
        cmocka_unit_test(test_refuses_tensors),
        cmocka_unit_test(test_refuses_puts),
    };
    return cmocka_run_group_tests_name("writer refusals", tests, io_setup, io_teardown);
}
