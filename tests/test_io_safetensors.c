/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "test_io.h"

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define W(dtype, shape, offsets) "{\"w\":" T(dtype, shape, offsets) "}"

static void test_reads(void **state)
{
    struct fail f;
    struct st_file file;
    const char *path =
        io_st("good.safetensors",
              "{\"__metadata__\":{\"format\":\"pt\",\"b\":\"\\u00e4\"},"
              "\"z\":" T("F32", "[2,3]", "[2,26]") ", \"a\":" T(
                  "BF16", "[]",
                  "[0,2]") ",\n"
                           "\"m\":" T("I8", "[5,0]",
                                      "[26,26]") ",\"\\u20ac \\\"q\\\"\":"
                                                 "{\"data_offsets\":[26,27],\"more\":[[1]],\"shape\":[1,1,1,1,1,1,1,1],"
                                                 "\"dtype\":\"BOOL\"}}   ",
              27);
    assert_int_equal(st_open(&file, path, &f), 0);
    assert_int_equal(file.count, 4);
    for (size_t i = 1; i < file.count; i++)
        assert_true(strcmp(file.tensors[i - 1].name, file.tensors[i].name) < 0);
    const struct st_tensor *t = st_find(&file, "z");
    assert_non_null(t);
    assert_int_equal(t->dtype, FILE_F32);
    assert_int_equal(t->ndim, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->begin, 2);
    assert_int_equal(t->end, 26);
    assert_memory_equal(t->data, "\2\3\4", 3);
    assert_int_equal(st_find(&file, "a")->ndim, 0);
    assert_int_equal(st_find(&file, "m")->begin, st_find(&file, "m")->end);
    assert_int_equal(st_find(&file, "\xe2\x82\xac \"q\"")->ndim, 8);
    assert_null(st_find(&file, "b"));
    assert_int_equal(file.metadata_count, 2);
    assert_string_equal(file.metadata[0].name, "format");
    assert_string_equal(file.metadata[0].value, "pt");
    assert_string_equal(file.metadata[1].value, "\xc3\xa4");
    st_close(&file);
    assert_null(file.tensors);
    st_close(&file);

    static const struct {
        const char *header;
        size_t data, count;
    } good[] = {
        {"{}", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {W("F64", "[0]", "[0,0]"), 0, 1},
        {W("U8", "[0,9007199254740991]", "[0,0]"), 0, 1},
        {"{\"a\":" T("U8", "[0]", "[3,3]") ",\"b\":" T("U8", "[3]", "[0,3]") ",\"c\":" T("U8", "[2]", "[3,5]") "}", 5,
         3},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(st_open(&file, io_st("good", good[i].header, good[i].data), &f), 0);
        assert_int_equal(file.count, good[i].count);
        assert_null(st_find(&file, "x"));
        st_close(&file);
    }
}

static void test_refuses_files(void **state)
{
    struct fail f;
    struct st_file file;
    assert_refused(st_open(&file, io_path("missing"), &f), &f, "missing", "No such file");
    st_close(&file);
    assert_refused(st_open(&file, io_path(""), &f), &f, "is a directory");
    assert_refused(st_open(&file, io_bytes("f", "", 0), &f), &f, "/f: ", "is empty", "0 bytes");
    assert_refused(st_open(&file, io_bytes("f", "\2\0\0\0\0\0\0", 7), &f), &f, "7 bytes");
    assert_refused(st_open(&file, io_bytes("f", "\0\0\0\0\0\0\0\0", 8), &f), &f, "must begin with '{'");
    assert_refused(st_open(&file, io_bytes("f", "\3\0\0\0\0\0\0\0{}", 10), &f), &f, "3 bytes", "2 are there");
    assert_refused(st_open(&file, io_bytes("f", "\0\350\166\110\27\0\0\0{}", 10), &f), &f, "100000000000 bytes",
                   "at most 100000000 ");
    assert_refused(st_open(&file, io_bytes("f", "\377\377\377\377\377\377\377\377{}", 10), &f), &f,
                   "18446744073709551615");
    assert_refused(st_open(&file, io_bytes("f", "\3\0\0\0\0\0\0\0{}\0", 11), &f), &f, "cannot be read as JSON",
                   "byte 2");
    assert_refused(st_open(&file, io_bytes("f", "\4\0\0\0\0\0\0\0{\"\0\"", 12), &f), &f, "control character");
    assert_null(file.map.data);
}

/* A header, the number of data bytes, and two words of the message. */
static const struct {
    const char *header;
    size_t data;
    const char *words[2];
} bad[] = {
    {"[]", 0, {"must begin with '{'", ""}},
    {" {}", 0, {"must begin with '{'", ""}},
    {"\xef\xbb\xbf{}", 0, {"must begin with '{'", ""}},
    {"{", 0, {"cannot be read as JSON", "ends inside an object"}},
    {"{\"a", 0, {"cannot be read as JSON", "ends inside a string"}},
    {"{\"a\\", 0, {"cannot be read as JSON", "ends inside a string"}},
    {"{]", 0, {"cannot be read as JSON", "syntax error"}},
    {"{}}", 0, {"cannot be read as JSON", "text after the object at its byte 2"}},
    {"{}{}", 0, {"cannot be read as JSON", "text after the object"}},
    {"{\"a\":1,}", 0, {"cannot be read as JSON", "syntax error"}},
    {"{\"a\":nul}", 0, {"cannot be read as JSON", "syntax error"}},
    {"{\"a\":\"\\ud800\"}", 0, {"cannot be read as JSON", "half of a surrogate pair"}},
    {"{\"a\":\"\\udc00\\ud800\"}", 0, {"cannot be read as JSON", "half of a surrogate pair"}},
    {"{\"a\":\"\\x\"}", 0, {"cannot be read as JSON", "unknown escape sequence"}},
    {"{\"a\\", 0, {"cannot be read as JSON", "the text ends inside a string"}},
    {"{\"a\":01}", 0, {"cannot be read as JSON", "syntax error"}},
    {"{\"a\":1.}", 0, {"cannot be read as JSON", "syntax error"}},
    {"{\"a\":+1}", 0, {"cannot be read as JSON", "syntax error"}},
    {"{\"a\":1e}", 0, {"cannot be read as JSON", "syntax error"}},
    {"{\"a\":NaN}", 0, {"cannot be read as JSON", "syntax error"}},
    {"{\"a\":-Infinity}", 0, {"cannot be read as JSON", "syntax error"}},
    {"{\"a\":'b'}", 0, {"cannot be read as JSON", "syntax error"}},
    {"{\"a\":/**/1}", 0, {"cannot be read as JSON", "syntax error"}},
    {"{\"a\":\"\\u0000\"}", 0, {"cannot be read as JSON", "\\u0000"}},
    {"{\"a\":\"\n\"}", 0, {"cannot be read as JSON", "control character"}},
    {"{\"a\":\"\xff\"}", 0, {"cannot be read as JSON", "invalid UTF-8 at its byte 6"}},
    {"{\"\xed\xa0\x80\":1}", 0, {"cannot be read as JSON", "invalid UTF-8"}},
    {"{\x01}", 0, {"cannot be read as JSON", "syntax error"}},
    {"{\xc2\xa0}", 0, {"cannot be read as JSON", "syntax error"}},
    {"{\"w\":1}", 0, {"tensor 'w'", "must be an object, not 1"}},
    {"{\"w\":null}", 0, {"tensor 'w'", "not null"}},
    {"{\"w\":{}}", 0, {"tensor 'w'", "has no dtype"}},
    {"{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, {"tensor 'w'", "has no shape"}},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, {"tensor 'w'", "has no data_offsets"}},
    {"{\"w\":{\"DTYPE\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, {"tensor 'w'", "has no dtype"}},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}",
     4,
     {"'w'", "two values for shape"}},
    {"{\"w\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, {"tensor 'w'", "dtype 5 is unknown"}},
    {W("F99", "[1]", "[0,4]"), 4, {"dtype \"F99\" is unknown", "F32, U32, I32, BF16"}},
    {W("f32", "[1]", "[0,4]"), 4, {"dtype \"f32\" is unknown", "F8_E8M0"}},
    {W("F4", "[3]", "[0,2]"), 2, {"shape [3] of F4", "ends within a byte"}},
    {W("F6_E2M3", "[4]", "[0,4]"), 4, {"hold 4 bytes", "shape [4] of F6_E2M3 needs 3"}},
    {W("F32", "{}", "[0,4]"), 4, {"tensor 'w'", "shape must be an array, not an object"}},
    {W("F32", "[-1]", "[0,4]"), 4, {"tensor 'w'", "shape[0] is -1"}},
    {W("F32", "[1,1.5]", "[0,4]"), 4, {"tensor 'w'", "shape[1] is 1.5"}},
    {W("F32", "[1.0]", "[0,4]"), 4, {"tensor 'w'", "shape[0] is 1.0"}},
    {W("F32", "[1e0]", "[0,4]"), 4, {"tensor 'w'", "shape[0] is 1e0"}},
    {W("F32", "[-0]", "[0,4]"), 4, {"tensor 'w'", "shape[0] is -0"}},
    {W("F32", "[02]", "[0,8]"), 8, {"cannot be read as JSON", "syntax error at its byte"}},
    {W("F32", "[\"1\"]", "[0,4]"), 4, {"tensor 'w'", "shape[0] is \"1\""}},
    {W("F32", "[9007199254740992]", "[0,4]"), 4, {"shape[0] is 9007199254740992", "2^53"}},
    {W("F32", "[9007199254740993]", "[0,4]"), 4, {"shape[0] is", "2^53"}},
    {W("F32", "[1e400]", "[0,4]"), 4, {"shape[0] is 1e400", "2^53"}},
    {W("U8", "[4294967296,4294967296]", "[0,0]"),
     0,
     {"tensor 'w'", "shape [4294967296,4294967296] of U8 is more than 2^63 - 1"}},
    {W("F32", "[2305843009213693952]", "[0,0]"), 0, {"shape[0] is", "2^53"}},
    {W("F32", "[9007199254740991,1024]", "[0,0]"),
     0,
     {"tensor 'w'", "shape [9007199254740991,1024] of F32 is more than 2^63 - 1"}},
    {W("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, {"has 9 dimensions", "at most 8"}},
    {W("F32", "[1]", "4"), 4, {"tensor 'w'", "data_offsets must be an array, not 4"}},
    {W("F32", "[1]", "[0]"), 4, {"tensor 'w'", "data_offsets has 1 numbers"}},
    {W("F32", "[1]", "[0,4,8]"), 4, {"tensor 'w'", "data_offsets has 3 numbers"}},
    {W("F32", "[1]", "[-4,0]"), 4, {"tensor 'w'", "data_offsets[0] is -4"}},
    {W("F32", "[1]", "[0,4.5]"), 4, {"tensor 'w'", "data_offsets[1] is 4.5"}},
    {W("F32", "[1]", "[0,18446744073709551620]"), 4, {"tensor 'w'", "data_offsets[1] is 18446744073709551620"}},
    {W("F32", "[1]", "[0,true]"), 4, {"tensor 'w'", "data_offsets[1] is true"}},
    {W("F32", "[1]", "[4,0]"), 4, {"tensor 'w'", "begin at 4 and end before, at 0"}},
    {W("F32", "[1]", "[0,4]"), 3, {"tensor 'w'", "end at 4, but the data section has 3"}},
    {W("F32", "[1]", "[9007199254740987,9007199254740991]"), 4, {"end at 9007199254740991", "has 4 bytes"}},
    {W("F32", "[2]", "[0,4]"), 4, {"hold 4 bytes", "shape [2] of F32 needs 8"}},
    {W("F32", "[]", "[0,0]"), 0, {"hold 0 bytes", "shape [] of F32 needs 4"}},
    {W("F32", "[1]", "[0,4]"), 5, {"end at byte 4", "has 5 bytes"}},
    {"{}", 1, {"end at byte 0", "has 1 bytes"}},
    {W("F32", "[1]", "[4,8]"), 8, {"tensor 'w'", "no holes"}},
    {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[3,5]") "}",
     5,
     {"tensor 'b': begins at byte 3", "no holes"}},
    {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[1,3]") "}", 3, {"tensor 'b'", "inside 'a'"}},
    {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[0,2]") "}", 2, {"begins at byte 0", "inside"}},
    {"{\"a\":" T("U8", "[3]", "[0,3]") ",\"b\":" T("U8", "[0]", "[1,1]") "}", 3, {"tensor 'b'", "inside 'a'"}},
    {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"a\":" T("U8", "[2]", "[2,4]") "}", 4, {"tensor 'a'", "occurs twice"}},
    {"{\"__metadata__\":1}", 0, {"__metadata__ must be an object", "not 1"}},
    {"{\"__metadata__\":{\"k\":1}}", 0, {"__metadata__ 'k' must be a string", "not 1"}},
    {"{\"__metadata__\":{\"k\":\"1\",\"\\u006b\":\"2\"}}", 0, {"__metadata__ has the key 'k' twice", ""}},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, {"__metadata__", "occurs twice"}},
};

static void test_refuses_headers(void **state)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fail f;
        struct st_file file;
        const char *path = io_st("bad.safetensors", bad[i].header, bad[i].data);
        if (st_open(&file, path, &f) == 0)
            io_stop("was read: %s\n", bad[i].header);
        assert_refused(-1, &f, path, bad[i].words[0], bad[i].words[1]);
        assert_null(file.map.data);
    }
}

/* Large, valid headers. */
static void test_refuses_excess(void **state)
{
    struct fail f;
    struct st_file file;
    const size_t length = 9000000;
    char *text = malloc(length + 1);
    assert_non_null(text);
    text[length] = '\0';

    strcpy(text, "{\"w\":");
    memset(text + 5, '[', 100000);
    memset(text + 100005, ']', 100000);
    strcpy(text + 200005, "}");
    assert_refused(st_open(&file, io_st("deep", text, 0), &f), &f, "deep", "32 levels");

    memset(text, ',', length);
    memcpy(text, "{\"w\":[", 6);
    for (size_t i = 6; i < length - 2; i += 2)
        text[i] = '0';
    memcpy(text + length - 2, "]}", 2);
    assert_refused(st_open(&file, io_st("wide", text, 0), &f), &f, "wide", "values");

    /* The message has the reason even for a long name. */
    memset(text, 'n', 100000);
    memcpy(text, "{\"", 2);
    strcpy(text + 100000, "\":5}");
    assert_refused(st_open(&file, io_st("long", text, 0), &f), &f, "long", "not 5");
    free(text);
}

int io_test_safetensors(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_refuses_files),
        cmocka_unit_test(test_refuses_headers),
        cmocka_unit_test(test_refuses_excess),
    };
    return cmocka_run_group_tests_name("safetensors", tests, io_setup, io_teardown);
}
