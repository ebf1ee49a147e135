/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "test_io.h"

#define H(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"

static void test_reads(void **state)
{
    struct fail f;
    struct npy_file file;
    assert_int_equal(npy_open(&file, io_npy("a.npy", H("'<f4'", "False", "(2, 3)"), 24), &f), 0);
    assert_int_equal(file.dtype, FILE_F32);
    assert_int_equal(file.ndim, 2);
    assert_int_equal(file.shape[0], 2);
    assert_int_equal(file.shape[1], 3);
    assert_int_equal(file.strides[0], 12);
    assert_int_equal(file.strides[1], 4);
    assert_int_equal(file.bytes, 24);
    assert_memory_equal(file.data, "\0\1\2\3", 4);
    npy_close(&file);
    assert_null(file.map.data);
    npy_close(&file);

    assert_int_equal(npy_open(&file, io_npy("a.npy", H("'<f8'", "True", "(2, 3, 4)"), 192), &f), 0);
    assert_int_equal(file.strides[0], 8);
    assert_int_equal(file.strides[1], 16);
    assert_int_equal(file.strides[2], 48);
    npy_close(&file);

    /* Other valid forms: order of keys, quotes, white space, no last comma. */
    const char *other = "\n{\"shape\":(3,),\"fortran_order\" :True,\n'descr':\t\"|u1\"}\n";
    assert_int_equal(npy_open(&file, io_npy("a.npy", other, 3), &f), 0);
    assert_int_equal(file.ndim, 1);
    assert_int_equal(file.strides[0], 1);
    npy_close(&file);

    assert_int_equal(npy_open(&file, io_npy("a.npy", H("'<i8'", "False", "()"), 8), &f), 0);
    assert_int_equal(file.ndim, 0);
    npy_close(&file);
    assert_int_equal(npy_open(&file, io_npy("a.npy", H("'<i8'", "True", "(3, 0, 2,)"), 0), &f), 0);
    assert_int_equal(file.ndim, 3);
    assert_int_equal(file.bytes, 0);
    npy_close(&file);
    assert_int_equal(npy_open(&file, io_npy("a.npy", H("'<i2'", "False", "(1,1,1,1,1,1,1,1)"), 2), &f), 0);
    assert_int_equal(file.ndim, 8);
    npy_close(&file);
}

static void test_types(void **state)
{
    static const struct {
        const char *descr;
        enum file_dtype dtype;
    } types[] = {
        {"<f4", FILE_F32}, {"<f8", FILE_F64}, {"<f2", FILE_F16}, {"<i8", FILE_I64},  {"<i4", FILE_I32},
        {"<i2", FILE_I16}, {"|i1", FILE_I8},  {"|u1", FILE_U8},  {"|b1", FILE_BOOL}, {"=f4", FILE_F32},
        {"=i1", FILE_I8},  {"<u2", FILE_U16}, {"<u4", FILE_U32}, {"<u8", FILE_U64},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct fail f;
        struct npy_file file;
        char header[100];
        snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (2,)}", types[i].descr);
        assert_int_equal(npy_open(&file, io_npy("t.npy", header, 2 * dtype_size(types[i].dtype)), &f), 0);
        assert_int_equal(file.dtype, types[i].dtype);
        npy_close(&file);
    }
}

static void test_versions(void **state)
{
    struct fail f;
    struct npy_file file;
    const char *header = "{'descr': '<f2', 'fortran_order': False, 'shape': (3,)}\n";
    for (char major = 2; major <= 4; major++) {
        unsigned char bytes[12 + 256 + 6] = {0x93, 'N', 'U', 'M', 'P', 'Y', (unsigned char)major, 0, 0, 1};
        memset(bytes + 12, ' ', 256);
        memcpy(bytes + 12, header, strlen(header));
        memcpy(bytes + 268, "abcdef", 6);
        const char *path = io_bytes("v.npy", bytes, sizeof bytes);
        if (major == 4) {
            assert_refused(npy_open(&file, path, &f), &f, path, "version 4.0", "1.0, 2.0 and 3.0");
            continue;
        }
        assert_int_equal(npy_open(&file, path, &f), 0);
        assert_memory_equal(file.data, "abcdef", 6);
        npy_close(&file);
        bytes[10] = 1; /* the header would go on for 64 KiB */
        path = io_bytes("v.npy", bytes, sizeof bytes);
        assert_refused(npy_open(&file, path, &f), &f, "cut off", "65792 bytes", "262 are there");
        bytes[7] = 1;
        path = io_bytes("v.npy", bytes, sizeof bytes);
        assert_refused(npy_open(&file, path, &f), &f, ".1 is not supported");
    }
}

static void test_refuses_files(void **state)
{
    struct fail f;
    struct npy_file file;
    assert_refused(npy_open(&file, io_path("missing"), &f), &f, "No such file");
    npy_close(&file);
    assert_refused(npy_open(&file, io_bytes("f", "", 0), &f), &f, "is empty: 0 bytes");
    assert_refused(npy_open(&file, io_bytes("f", "\x93NUMPZ\1\0\0\0", 10), &f), &f, "not a .npy file");
    assert_refused(npy_open(&file, io_bytes("f", "\x93NUMPY\1\0\0", 9), &f), &f, "cut off", "9 bytes");
    assert_refused(npy_open(&file, io_bytes("f", "\x93NUMPY\2\0\0\0\0", 11), &f), &f, "cut off", "11 bytes");
    assert_refused(npy_open(&file, io_bytes("f", "\x93NUMPY\1\0\0\0", 10), &f), &f, "'{' expected");
    assert_refused(npy_open(&file, io_bytes("f", "\x93NUMPY\1\0\3\0{}", 12), &f), &f, "cut off", "3 bytes",
                   "2 are there");
    assert_null(file.map.data);
}

static void test_refuses_headers(void **state)
{
    static const struct {
        const char *header;
        size_t data;
        const char *words[2];
    } bad[] = {
        {H("'>f4'", "False", "(1,)"), 4, {"'>f4'", "big-endian"}},
        {H("'|O'", "False", "(1,)"), 8, {"'|O'", "Python objects"}},
        {H("'O'", "False", "(1,)"), 8, {"'O'", "Python objects"}},
        {H("[('a', '<f4')]", "False", "(1,)"), 4, {"structured types", "not supported"}},
        {H("'<c8'", "False", "(1,)"), 8, {"'<c8' is not supported", "<f4"}},
        {H("'|f4'", "False", "(1,)"), 4, {"'|f4' is not supported", "<f4"}},
        {H("'f4'", "False", "(1,)"), 4, {"'f4' is not supported", "<f4"}},
        {H("'<f44'", "False", "(1,)"), 4, {"'<f44' is not supported", "<f4"}},
        {H("'<V2'", "False", "(1,)"), 2, {"'<V2' is not supported", "<f2"}},
        {H("''", "False", "(1,)"), 4, {"'' is not supported", ""}},
        {H("'<'", "False", "(1,)"), 4, {"'<' is not supported", ""}},
        {H("5", "False", "(1,)"), 4, {"a quoted string expected", ""}},
        {H("'<f4", "False", "(1,)"), 4, {"type '<f4, ' is not supported", ""}},
        {"{'descr': '<f4", 4, {"short plain string expected", ""}},
        {H("'<f4\\n'", "False", "(1,)"), 4, {"plain string expected", ""}},
        {H("'<f4'", "false", "(1,)"), 4, {"True or False expected", ""}},
        {H("'<f4'", "Truely", "(1,)"), 4, {"',' or '}' expected", ""}},
        {H("'<f4'", "0", "(1,)"), 4, {"True or False expected", ""}},
        {H("'<f4'", "False", "[1]"), 4, {"'(' of a shape expected", ""}},
        {H("'<f4'", "False", "(1)"), 4, {"one dimension expected", ""}},
        {H("'<f4'", "False", "(,)"), 4, {"a whole number expected", ""}},
        {H("'<f4'", "False", "(1,,2)"), 8, {"a whole number expected", ""}},
        {H("'<f4'", "False", "(1 2)"), 8, {"',' or ')' expected", ""}},
        {H("'<f4'", "False", "(1.5,)"), 4, {"',' or ')' expected", ""}},
        {H("'<f4'", "False", "(01,)"), 4, {"a whole number expected", ""}},
        {H("'<f4'", "False", "(1, -2)"), 4, {"shape[1] is -2", "0 or more"}},
        {H("'<f4'", "False", "(99999999999999999999,)"), 4, {"shape[0] is more than 2^63 - 1", ""}},
        {H("'<f4'", "False", "(4611686018427387904,)"), 4, {"of F32 is more than 2^63 - 1 bytes", ""}},
        {H("'<f4'", "False", "(4294967296, 4294967296)"), 4, {"of F32 is more than 2^63 - 1 bytes", ""}},
        {H("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)"), 4, {"more than 8 dimensions", "at most 8"}},
        {H("'<f4'", "False", "(2, 3)"), 23, {"cut off", "shape [2,3] of F32 needs 24 bytes of data, 23 are there"}},
        {H("'<f4'", "False", "(2, 3)"), 25, {"[2,3] of F32 needs 24 bytes of data", "25 are there"}},
        {H("'<f4'", "False", "(1,)") "x", 4, {"nothing more expected", ""}},
        {H("'<f4'", "False", "(1,)") "}", 4, {"nothing more expected", ""}},
        {"", 4, {"'{' expected at its byte", ""}},
        {"{}", 0, {"'descr' is missing", ""}},
        {"{'descr': '<f4', 'shape': (1,)}", 4, {"'fortran_order' is missing", ""}},
        {"{'descr': '<f4', 'fortran_order': False}", 4, {"'shape' is missing", ""}},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4, {"'descr' occurs twice", ""}},
        {"{'extra': 1, 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
         4,
         {"'extra' is unknown", "fortran_order"}},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", 4, {"',' or '}' expected", ""}},
        {"{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}", 4, {"':' expected", ""}},
        {"{'a very long key that no file has': 1}", 4, {"short plain string expected", ""}},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), ", 4, {"a quoted string expected", ""}},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,", 4, {"a whole number expected", ""}},
        {"{\xc2\xa0}", 4, {"a quoted string expected", ""}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fail f;
        struct npy_file file;
        const char *path = io_npy("bad.npy", bad[i].header, bad[i].data);
        if (npy_open(&file, path, &f) == 0)
            io_stop("was read: %s\n", bad[i].header);
        assert_refused(-1, &f, path, bad[i].words[0], bad[i].words[1]);
        assert_null(file.map.data);
    }
}

int io_test_npy(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),         cmocka_unit_test(test_types),           cmocka_unit_test(test_versions),
        cmocka_unit_test(test_refuses_files), cmocka_unit_test(test_refuses_headers),
    };
    return cmocka_run_group_tests_name("npy", tests, io_setup, io_teardown);
}
