/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include <unistd.h>

#include "test_io.h"

#define U8(name, n, offsets) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" n "],\"data_offsets\":" offsets "}"
#define NPY "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}"

static const char *text(const char *name, const char *content) { return io_bytes(name, content, strlen(content)); }

static void test_safetensors(void **state)
{
    struct fail f;
    struct tensor_set set;
    const char *path = io_st("m.safetensors",
                             "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3,4],\"data_offsets\":[3,51]}," U8(
                                 "z", "2", "[0,2]") "," U8("m", "1", "[2,3]") "," U8("s", "0", "[2,2]") "}",
                             51);
    assert_int_equal(tensors_open(&set, path, &f), 0);
    assert_int_equal(set.count, 4);
    const char *const order[] = {"z", "s", "m", "a"}; /* order of the data, not of the names or the header */
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(set.refs[i].name, order[i]);
        assert_ptr_equal(tensors_find(&set, order[i]), &set.refs[i]);
    }
    assert_null(tensors_find(&set, "b"));
    const struct tensor_ref *a = tensors_find(&set, "a");
    assert_string_equal(a->file, path);
    assert_int_equal(a->dtype, FILE_BF16);
    assert_int_equal(a->ndim, 3);
    assert_int_equal(a->shape[2], 4);
    assert_int_equal(a->strides[0], 24);
    assert_int_equal(a->strides[1], 8);
    assert_int_equal(a->strides[2], 2);
    assert_int_equal(a->bytes, 48);
    assert_memory_equal(a->data, "\3\4\5", 3);
    tensors_close(&set);
    tensors_close(&set);
    assert_int_equal(set.count, 0);
}

static void test_npy(void **state)
{
    struct fail f;
    struct tensor_set set;
    const char *const names[][2] = {
        {"layer.1.npy", "layer.1"}, {"array", "array"}, {".npy", ".npy"}, {"x.safetensors", "x.safetensors"}};
    for (size_t i = 0; i < 4; i++) { /* the content decides, not the name */
        assert_int_equal(tensors_open(&set, io_npy(names[i][0], NPY, 24), &f), 0);
        assert_int_equal(set.count, 1);
        const struct tensor_ref *t = &set.refs[0];
        assert_string_equal(t->name, names[i][1]);
        assert_ptr_equal(tensors_find(&set, names[i][1]), t);
        assert_int_equal(t->dtype, FILE_F32);
        assert_int_equal(t->strides[0], 4);
        assert_int_equal(t->strides[1], 8);
        assert_int_equal(t->bytes, 24);
        tensors_close(&set);
    }
}

static void test_kinds(void **state)
{
    struct fail f;
    struct tensor_set set;
    assert_int_equal(tensors_open(&set, io_st("no-extension", "{" U8("w", "1", "[0,1]") "}", 1), &f), 0);
    assert_int_equal(set.count, 1);
    tensors_close(&set);
    assert_int_equal(tensors_open(&set, text("plain", "{\"weight_map\":{}}"), &f), 0);
    assert_int_equal(set.count, 0);
    assert_null(tensors_find(&set, "w"));
    tensors_close(&set);

    assert_refused(tensors_open(&set, io_path("missing"), &f), &f, "missing", "No such file");
    tensors_close(&set);
    assert_refused(tensors_open(&set, io_bytes("unknown", "YK\3\4", 4), &f), &f, "unknown kind", ".npy");
    assert_refused(tensors_open(&set, io_bytes("archive", "PK\3\4", 4), &f), &f, "is a zip archive", "safetensors");
    assert_refused(tensors_open(&set, io_bytes("e.safetensors", "", 0), &f), &f, "is empty");
    assert_refused(tensors_open(&set, io_bytes("e.npy", "", 0), &f), &f, "is empty");
    assert_refused(tensors_open(&set, io_bytes("e.index.json", "", 0), &f), &f, "is empty");
    assert_refused(tensors_open(&set, io_path("e.npy/"), &f), &f, "Not a directory");
    assert_refused(tensors_open(&set, "/dev/null", &f), &f, "is a character device");
}

static void test_shards(void **state)
{
    struct fail f;
    struct tensor_set set;
    io_directory("model");
    io_directory("model/sub");
    io_st("model/1.safetensors",
          "{" U8("a", "2", "[2,4]") "," U8("z", "2", "[0,2]") "," U8("unlisted", "1", "[4,5]") "}", 5);
    const char *second = io_st("model/sub/2.safetensors", "{" U8("m", "3", "[0,3]") "," U8("a", "1", "[3,4]") "}", 4);
    const char *index = text("model/model.safetensors.index.json",
                             "\n{\"metadata\":{\"total_size\":1e99},\"weight_map\":{\"m\":\"sub/2.safetensors\","
                             "\"a\":\"1.safetensors\",\"z\":\"1.safetensors\"}}\n");
    const char *const opened[] = {index, io_path("model"), io_path("model/")};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(tensors_open(&set, opened[i], &f), 0);
        assert_string_equal(set.path, index);
        assert_int_equal(set.file_count, 2);
        assert_int_equal(set.count, 4);
        assert_string_equal(set.refs[0].name, "z");
        assert_string_equal(set.refs[1].name, "a");
        assert_string_equal(set.refs[2].name, "unlisted"); /* a loader reads it, too */
        assert_string_equal(set.refs[3].name, "m");
        assert_ptr_equal(set.refs[0].file, set.refs[1].file);
        assert_string_equal(set.refs[3].file, second);
        assert_ptr_equal(tensors_find(&set, "m"), &set.refs[3]);
        assert_string_equal(tensors_find(&set, "a")->file, set.refs[0].file); /* the index has chosen */
        tensors_close(&set);
    }
    assert_int_equal(chdir(io_path("model")), 0); /* an index without a directory in its name */
    assert_int_equal(tensors_open(&set, "model.safetensors.index.json", &f), 0);
    assert_int_equal(set.count, 4);
    tensors_close(&set);
    assert_int_equal(chdir("/"), 0);
}

static void test_refuses_shards(void **state)
{
    static const struct {
        const char *index;
        const char *words[2];
    } bad[] = {
        {"{}", {"weight_map", "it is missing"}},
        {"{\"weight_map\":[]}", {"weight_map", "it is an array"}},
        {"{\"weight_map\":{},\"weight_map\":{}}", {"weight_map", "occurs twice"}},
        {"{\"weight_map\":{\"w\":1}}", {"tensor 'w'", "it is 1"}},
        {"{\"weight_map\":{\"w\":\"s\"}} x", {"cannot be read as JSON", "text after"}},
        {"[]", {"cannot be read as JSON", "begin with '{'"}},
        {"{\"weight_map\":{\"w\":\"s\",\"w\":\"s\"}}", {"tensor 'w'", "occurs twice"}},
        {"{\"weight_map\":{\"w\":\"none\"}}", {"/none: ", "No such file"}},
        {"{\"weight_map\":{\"w\":\"sub\"}}", {"/sub: ", "is a directory"}},
        {"{\"weight_map\":{\"w\":\"sub/\"}}", {"/sub/: ", "is a directory"}},
        {"{\"weight_map\":{\"w\":\"s\",\"x\":\"s\"}}", {"tensor 'x' should be in", "/s, which does not hold it"}},
        {"{\"weight_map\":{\"w\":\"bad.index.json\"}}", {"not a safetensors file", ""}},
        {"{\"weight_map\":{\"w\":\"\"}}", {"tensor 'w': file ''", "not allowed"}},
        {"{\"weight_map\":{\"w\":\"/etc/passwd\"}}", {"file '/etc/passwd'", "not allowed"}},
        {"{\"weight_map\":{\"w\":\"..\"}}", {"file '..'", "not allowed"}},
        {"{\"weight_map\":{\"w\":\"../s\"}}", {"file '../s'", "relative path without '..'"}},
        {"{\"weight_map\":{\"w\":\"sub/../s\"}}", {"file 'sub/../s'", "not allowed"}},
        {"{\"weight_map\":{\"w\":\"sub/..\"}}", {"file 'sub/..'", "not allowed"}},
        {"{\"weight_map\":{\"w\":\"sub//..//s\"}}", {"file 'sub//..//s'", "not allowed"}},
    };
    io_directory("bad");
    io_directory("bad/sub");
    io_st("bad/s", "{" U8("w", "1", "[0,1]") "}", 1);
    io_st("bad/..s", "{" U8("w", "1", "[0,1]") "}", 1);
    struct fail f;
    struct tensor_set set;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *path = text("bad/bad.index.json", bad[i].index);
        if (tensors_open(&set, path, &f) == 0)
            io_stop("was read: %s\n", bad[i].index);
        assert_refused(-1, &f, io_path("bad"), bad[i].words[0], bad[i].words[1]);
        assert_null(set.path);
    }
    const char *const good[] = {"./s", "././s", ".//s", "..s"};
    for (size_t i = 0; i < 4; i++) {
        char index[100];
        snprintf(index, sizeof index, "{\"weight_map\":{\"w\":\"%s\"}}", good[i]);
        assert_int_equal(tensors_open(&set, text("bad/bad.index.json", index), &f), 0);
        tensors_close(&set);
    }
}

static void test_directories(void **state)
{
    struct fail f;
    struct tensor_set set;
    io_directory("dir");
    assert_refused(tensors_open(&set, io_path("dir"), &f), &f, "/dir: ", "model.safetensors.index.json");
    const char *path = io_st("dir/model.safetensors", "{" U8("w", "1", "[0,1]") "}", 1);
    assert_int_equal(tensors_open(&set, io_path("dir"), &f), 0);
    assert_string_equal(set.path, path);
    tensors_close(&set);
    text("dir/model.safetensors.index.json", "{\"weight_map\":{}}"); /* has priority */
    assert_int_equal(tensors_open(&set, io_path("dir"), &f), 0);
    assert_int_equal(set.count, 0);
    tensors_close(&set);
}

static void test_spec(void **state)
{
    struct fail f;
    struct tensor_files files = {0};
    const struct tensor_ref *ref, *again;
    const struct tensor_set *set;
    char spec[1100];
#define SPEC(name) (snprintf(spec, sizeof spec, "%s", io_path(name)), spec)
    io_directory("spec");
    io_st("spec/one", "{" U8("w:0", "1", "[0,1]") "}", 1);
    io_st("spec/none", "{}", 0);
    io_st("spec/model.safetensors",
          "{" U8("f", "1", "[5,6]") "," U8("e", "1", "[4,5]") "," U8("d", "1", "[3,4]") "," U8(
              "c", "1", "[2,3]") "," U8("b", "1", "[1,2]") "," U8("a", "1", "[0,1]") "}",
          6);

    assert_int_equal(tensors_spec(&files, SPEC("spec/one"), &ref, &f), 0);
    assert_string_equal(ref->name, "w:0");
    assert_int_equal(tensors_spec(&files, SPEC("spec/one:w:0"), &again, &f), 0); /* a colon in the tensor's name */
    assert_ptr_equal(again, ref);
    assert_int_equal(tensors_spec(&files, SPEC("spec:c"), &ref, &f), 0); /* a directory */
    assert_string_equal(ref->name, "c");
    assert_int_equal(tensors_spec(&files, SPEC("spec/./model.safetensors:c"), &again, &f), 0); /* another name of it */
    assert_ptr_equal(again, ref);
    assert_int_equal(symlink("model.safetensors", io_path("spec/link")), 0);
    assert_int_equal(tensors_spec(&files, SPEC("spec/link:c"), &again, &f), 0);
    assert_ptr_equal(again, ref);
    assert_int_equal(files.count, 2);
    assert_int_equal(tensor_files_open(&files, io_path("spec"), &set, &f), 0);
    assert_ptr_equal(tensors_find(set, "c"), ref);

    assert_refused(tensors_spec(&files, SPEC("spec"), &ref, &f), &f, "holds 6 tensors", "(a, b, c, d, e, ...)");
    assert_null(ref);
    assert_refused(tensors_spec(&files, SPEC("spec:x"), &ref, &f), &f, "no tensor 'x'", "6 (a, b, c, d, e, ...)");
    assert_refused(tensors_spec(&files, SPEC("spec:"), &ref, &f), &f, "no tensor ''");
    assert_refused(tensors_spec(&files, SPEC("spec/one:x"), &ref, &f), &f, "no tensor 'x'", "it holds 1 (w:0)");
    assert_refused(tensors_spec(&files, SPEC("spec/none"), &ref, &f), &f, "spec/none: holds no tensors");
    assert_refused(tensors_spec(&files, SPEC("spec/none:w"), &ref, &f), &f, "spec/none: holds no tensors");
    assert_refused(tensors_spec(&files, SPEC("spec/missing"), &ref, &f), &f, "spec/missing: ", "No such file");
    assert_refused(tensors_spec(&files, SPEC("spec/missing:w:0"), &ref, &f), &f, "spec/missing: ", "No such file");
    assert_refused(tensors_spec(&files, ":w", &ref, &f), &f, "':w': names no file");
    assert_refused(tensors_spec(&files, "", &ref, &f), &f, "'': names no file");
    assert_int_equal(files.count, 3);

    io_st("spec/one:w:0", "{" U8("v", "1", "[0,1]") "}", 1); /* now a file has the name of the complete argument */
    assert_int_equal(tensors_spec(&files, SPEC("spec/one:w:0"), &ref, &f), 0);
    assert_string_equal(ref->name, "v");
    assert_int_equal(tensors_spec(&files, SPEC("spec/one:w:0:v"), &again, &f), 0);
    assert_ptr_equal(again, ref);
    tensor_files_close(&files);
    assert_int_equal(files.count, 0);
    tensor_files_close(&files);
}

/* Long names hide no other part of a message and do not overflow the list. */
static void test_spec_long_names(void **state)
{
    struct fail f;
    struct tensor_files files = {0};
    const struct tensor_ref *ref;
    char name[301], header[3000] = "{";
    for (int i = 0; i < 6; i++) {
        memset(name, 'a' + i, 300);
        name[300] = '\0';
        snprintf(header + strlen(header), sizeof header - strlen(header),
                 "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "", name);
    }
    strcat(header, "}");
    assert_refused(tensors_spec(&files, io_st("long", header, 0), &ref, &f), &f, "holds 6 tensors", "aaaa..., ",
                   "eeee..., ...)");
    tensor_files_close(&files);
}

int io_test_tensors(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors),    cmocka_unit_test(test_npy),
        cmocka_unit_test(test_kinds),          cmocka_unit_test(test_shards),
        cmocka_unit_test(test_refuses_shards), cmocka_unit_test(test_directories),
        cmocka_unit_test(test_spec),           cmocka_unit_test(test_spec_long_names),
    };
    return cmocka_run_group_tests_name("tensors", tests, io_setup, io_teardown);
}
