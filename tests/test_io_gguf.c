/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The reader of GGUF files: every kind of value, each thing that is refused, and 6,000 damaged files. */
#include "files/gguf.h"
#include "test_io.h"

/* A file that a test writes piece by piece. */
struct made {
    unsigned char bytes[4096];
    size_t size;
};

static void put(struct made *m, const void *bytes, size_t size)
{
    assert_true(m->size + size <= sizeof m->bytes);
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static void put_number(struct made *m, uint64_t number, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        put(m, &(unsigned char){(unsigned char)(number >> 8 * i)}, 1);
}

static void put_text(struct made *m, const char *text)
{
    put_number(m, strlen(text), 8);
    put(m, text, strlen(text));
}

static void begin(struct made *m, unsigned version, uint64_t tensors, uint64_t keys)
{
    m->size = 0;
    put(m, "GGUF", 4);
    put_number(m, version, 4);
    put_number(m, tensors, 8);
    put_number(m, keys, 8);
}

static void put_key(struct made *m, const char *name, unsigned kind, uint64_t value, unsigned bytes)
{
    put_text(m, name);
    put_number(m, kind, 4);
    put_number(m, value, bytes);
}

static void put_tensor(struct made *m, const char *name, unsigned type, const int64_t *dims, unsigned count,
                       uint64_t offset)
{
    put_text(m, name);
    put_number(m, count, 4);
    for (unsigned d = 0; d < count; d++)
        put_number(m, (uint64_t)dims[d], 8);
    put_number(m, type, 4);
    put_number(m, offset, 8);
}

static void put_data(struct made *m, size_t alignment, size_t bytes)
{
    while (m->size % alignment != 0)
        put(m, "", 1);
    for (size_t i = 0; i < bytes; i++)
        put(m, &(unsigned char){(unsigned char)i}, 1);
}

/* A key of every kind, and an array of texts and one of numbers; tensors of three types. */
static void make_file(struct made *m)
{
    static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    begin(m, 3, 3, 15);
    for (unsigned kind = 0; kind < sizeof sizes; kind++)
        if (sizes[kind] > 0)
            put_key(m, (char[]){'k', (char)('a' + kind), 0}, kind,
                    kind == GGUF_F32   ? 0x3fc00000
                    : kind == GGUF_F64 ? 0x3ff8000000000000
                                       : 0xffffffffffffffff,
                    sizes[kind]);
    put_key(m, "general.alignment", GGUF_U32, 64, 4);
    put_text(m, "text");
    put_number(m, GGUF_STRING, 4);
    put_text(m, "llama");
    put_text(m, "texts");
    put_number(m, GGUF_ARRAY, 4);
    put_number(m, GGUF_STRING, 4);
    put_number(m, 2, 8);
    put_text(m, "a");
    put_text(m, "bcd");
    put_text(m, "numbers");
    put_number(m, GGUF_ARRAY, 4);
    put_number(m, GGUF_I16, 4);
    put_number(m, 3, 8);
    put_number(m, 0xfffe00020001, 6);
    put_tensor(m, "norm", 0, IO_DIMS(3), 1, 0);
    put_tensor(m, "weight", 12, IO_DIMS(256, 2), 2, 64);
    put_tensor(m, "scalar", 1, NULL, 0, 384);
    put_data(m, 64, 386);
}

static void test_reads(void **state)
{
    static struct made m;
    static const char *const texts[] = {
        "255", "-1", "65535", "-1", "4294967295", "-1", "1.5", "true", "", "", "18446744073709551615", "-1", "1.5"};
    struct fail f;
    struct gguf_file file;
    char text[16];
    make_file(&m);
    assert_int_equal(gguf_open(&file, io_bytes("a.gguf", m.bytes, m.size), &f), 0);
    assert_int_equal(file.key_count, 15);
    for (unsigned kind = 0; kind < GGUF_KINDS; kind++) {
        const struct gguf_key *key = gguf_find_key(&file, (char[]){'k', (char)('a' + kind), 0});
        uint64_t number = 0;
        const bool whole = kind != GGUF_F32 && kind != GGUF_F64 && kind != GGUF_BOOL;
        if (kind == GGUF_STRING || kind == GGUF_ARRAY)
            continue;
        gguf_value_text(key->kind, key->at, text, sizeof text);
        assert_string_equal(text, kind == GGUF_U64 ? "184467440737095" : texts[kind]); /* cut to the size */
        assert_int_equal(gguf_whole_number(key, &number), whole);
    }
    const struct gguf_key *key = gguf_find_key(&file, "texts");
    assert_true(key->is_array && key->kind == GGUF_STRING && key->count == 2);
    const unsigned char *second = gguf_value_text(key->kind, key->at, text, sizeof text);
    assert_string_equal(text, "a");
    gguf_value_text(key->kind, second, text, sizeof text);
    assert_string_equal(text, "bcd");
    key = gguf_find_key(&file, "numbers");
    gguf_value_text(key->kind, key->at + 4, text, sizeof text);
    assert_string_equal(text, "-2");
    assert_int_equal(file.count, 3);
    assert_string_equal(file.tensors[1].type.name, "Q4_K");
    assert_int_equal(file.tensors[1].shape[0], 2); /* rows first, columns last */
    assert_int_equal(file.tensors[1].shape[1], 256);
    assert_int_equal(file.tensors[1].bytes, 288);
    assert_memory_equal(file.tensors[1].data, "\x40\x41\x42", 3);
    assert_int_equal(file.tensors[2].elements, 1);
    assert_memory_equal(file.tensors[2].data, "\x80\x81", 2);
    gguf_close(&file);
    assert_null(file.map.data);
    gguf_close(&file);
}

/* Files with one key and one tensor, of which one thing is wrong. */
enum wrong {
    RIGHT,
    KIND,
    ALIGNMENT,
    NESTED,
    TWICE,
    DIMS,
    HUGE_SHAPE,
    TYPE,
    ROWS,
    OFFSET,
    DATA,
    NAME,
    VERSION,
    ENDIAN,
    WRONGS
};

static void make_wrong(struct made *m, enum wrong wrong)
{
    begin(m, wrong == VERSION ? 4 : wrong == ENDIAN ? 3U << 24 : 3, 1, 2);
    put_key(m, wrong == NAME ? "" : "a", wrong == KIND ? 13 : GGUF_U32, 1, 4);
    put_text(m, wrong == TWICE ? "a" : wrong == ALIGNMENT ? "general.alignment" : "b");
    put_number(m, wrong == NESTED ? GGUF_ARRAY : GGUF_U32, 4);
    put_number(m, wrong == NESTED ? GGUF_ARRAY : 24, 4);
    put_number(m, 0, wrong == NESTED ? 8 : 0);
    put_tensor(m, "t", wrong == TYPE ? 4 : 8,
               wrong == ROWS         ? IO_DIMS(33, 2, 1, 1, 1)
               : wrong == HUGE_SHAPE ? IO_DIMS((int64_t)1 << 40, 512, 1, 1, 1)
                                     : IO_DIMS(32, 2, 1, 1, 1),
               wrong == DIMS ? 5 : 2, wrong == OFFSET ? 32 : 0);
    put_data(m, 32, wrong == DATA ? 67 : 68);
}

static void test_refuses(void **state)
{
    static struct made m;
    static const char *const words[WRONGS][2] = {
        [KIND] = {"'a'", "13"},
        [ALIGNMENT] = {"general.alignment", "power of 2"},
        [NESTED] = {"'b'", "arrays"},
        [TWICE] = {"'a'", "twice"},
        [DIMS] = {"'t'", "5 dimensions"},
        [HUGE_SHAPE] = {"'t'", "2^48"},
        [TYPE] = {"'t'", "type 4"},
        [ROWS] = {"33", "Q8_0"},
        [OFFSET] = {"'t'", "byte 32"},
        [DATA] = {"cut off", "'t'"},
        [NAME] = {"key 0", "0 bytes"},
        [VERSION] = {"version 4", "2 and 3"},
        [ENDIAN] = {"big-endian", "gguf-convert-endian"},
    };
    for (int wrong = RIGHT; wrong < WRONGS; wrong++) {
        struct fail f;
        struct gguf_file file;
        make_wrong(&m, (enum wrong)wrong);
        const char *path = io_bytes("a.gguf", m.bytes, m.size);
        const int result = gguf_open(&file, path, &f);
        if (wrong == RIGHT)
            assert_int_equal(result, 0);
        else
            assert_refused(result, &f, path, words[wrong][0], words[wrong][1]);
        gguf_close(&file);
    }
    struct fail f;
    struct gguf_file file;
    assert_refused(gguf_open(&file, io_bytes("a.gguf", "GGUG", 4), &f), &f, "no GGUF file");
    begin(&m, 3, 0, (uint64_t)1 << 60);
    assert_refused(gguf_open(&file, io_bytes("a.gguf", m.bytes, m.size), &f), &f, "keys", "65536");
    begin(&m, 3, (uint64_t)1 << 60, 0);
    assert_refused(gguf_open(&file, io_bytes("a.gguf", m.bytes, m.size), &f), &f, "tensors", "1048576");
}

/* Each file is refused with a message, or all of its bytes can be read. */
static void open_damaged(const struct made *m, size_t size, size_t *opened)
{
    struct fail f = {.message = ""};
    struct gguf_file file;
    unsigned sum = 0;
    if (gguf_open(&file, io_bytes("damaged.gguf", m->bytes, size), &f) != 0) {
        assert_true(f.message[0] != '\0');
        return;
    }
    for (size_t i = 0; i < file.count; i++)
        for (uint64_t b = 0; b < file.tensors[i].bytes; b++)
            sum += file.tensors[i].data[b];
    *opened += sum > 0;
    gguf_close(&file);
}

static void test_damaged(void **state)
{
    static struct made good, m;
    size_t opened = 0, cut = 0;
    make_file(&good);
    for (size_t size = 0; size < good.size; size++)
        open_damaged(&good, size, &cut);
    assert_int_equal(cut, 0);
    uint64_t random = 1;
    for (int i = 0; i < 5000; i++) {
        m = good;
        for (int k = 0; k <= i % 3; k++) {
            random = random * 6364136223846793005 + 1442695040888963407;
            m.bytes[(random >> 33) % (good.size - 386)] = (unsigned char)(i % 2 ? random >> 20 : 0xff);
        }
        open_damaged(&m, m.size, &opened);
    }
    assert_true(opened > 100 && opened < 4000);
}

int io_test_gguf(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests_name("gguf", tests, io_setup, io_teardown);
}
