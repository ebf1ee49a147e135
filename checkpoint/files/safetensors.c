/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Walks through the JSON header and checks that the tensors fill the data section without gaps or overlaps. */
#include "files/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "files/file_kind.h"
#include "files/json.h"
#include "files/text.h"

/* Names from a file may have any length; messages show the first 200 bytes. */
#define TENSOR "%s: tensor '%.200s': "

/* The three required keys of a tensor's entry; without text: absent. Other keys are ignored, as in the reference
 * implementation. */
struct entry {
    struct json_span dtype, shape, offsets;
};

static int read_entry(struct json_span item, struct entry *e, const char *name, const char *path, struct fail *f)
{
    struct json_span key, value;
    *e = (struct entry){0};
    if (*item.text != '{')
        return fail(f, TENSOR "must be an object, not %s", path, name, SPAN_WORDS(item));
    for (struct json_walk w = json_enter(item.text); json_step(&w, &key, &value);) {
        struct json_span *slot = json_span_is(key, "dtype")          ? &e->dtype
                                 : json_span_is(key, "shape")        ? &e->shape
                                 : json_span_is(key, "data_offsets") ? &e->offsets
                                                                     : NULL;
        if (slot && slot->text)
            return fail(f, TENSOR "has two values for %.*s", path, name, (int)key.length - 2, key.text + 1);
        if (slot)
            *slot = value;
    }
    const char *missing = !e->dtype.text     ? "dtype"
                          : !e->shape.text   ? "shape"
                          : !e->offsets.text ? "data_offsets"
                                             : NULL;
    if (!missing)
        return 0;
    return fail(f, TENSOR "has no %s; dtype, shape and data_offsets are needed", path, name, missing);
}

static int read_shape(struct json_span list, struct st_tensor *t, const char *path, struct fail *f)
{
    struct json_span key, dim;
    if (*list.text != '[')
        return fail(f, TENSOR "shape must be an array, not %s", path, t->name, SPAN_WORDS(list));
    for (struct json_walk w = json_enter(list.text); json_step(&w, &key, &dim);) {
        uint64_t value;
        if (t->ndim == TENSOR_MAX_DIMS)
            return fail(f, TENSOR "has %zu dimensions; at most %d are supported", path, t->name, json_span_count(list),
                        TENSOR_MAX_DIMS);
        if (json_span_integer(dim, &value) != 0)
            return fail(f, TENSOR "shape[%d] is %s; a whole number from 0 to 2^53 - 1 is needed", path, t->name,
                        t->ndim, SPAN_WORDS(dim));
        t->shape[t->ndim++] = (int64_t)value;
    }
    return 0;
}

static int read_offsets(struct json_span list, struct st_tensor *t, const char *path, uint64_t section, struct fail *f)
{
    struct json_span key, number;
    uint64_t offsets[2];
    if (*list.text != '[')
        return fail(f, TENSOR "data_offsets must be an array, not %s", path, t->name, SPAN_WORDS(list));
    if (json_span_count(list) != 2)
        return fail(f, TENSOR "data_offsets has %zu numbers; begin and end are needed", path, t->name,
                    json_span_count(list));
    struct json_walk w = json_enter(list.text);
    for (int i = 0; i < 2 && json_step(&w, &key, &number); i++)
        if (json_span_integer(number, &offsets[i]) != 0)
            return fail(f, TENSOR "data_offsets[%d] is %s; a whole number from 0 to 2^53 - 1 is needed", path, t->name,
                        i, SPAN_WORDS(number));
    t->begin = offsets[0];
    t->end = offsets[1];
    if (t->begin > t->end)
        return fail(f, TENSOR "data_offsets begin at %" PRIu64 " and end before, at %" PRIu64, path, t->name, t->begin,
                    t->end);
    if (t->end > section)
        return fail(f,
                    TENSOR "data_offsets end at %" PRIu64 ", but the data section has %" PRIu64
                           " bytes; the file is cut off, fetch it again",
                    path, t->name, t->end, section);
    return 0;
}

static enum file_dtype read_dtype(struct json_span value)
{
    return *value.text == '"' ? dtype_find(value.text + 1, value.length - 2) : FILE_NONE;
}

static int read_tensor(struct json_span item, struct st_tensor *t, const char *path, uint64_t section, struct fail *f)
{
    struct entry e;
    RETURN_IF_NOT_OK(read_entry(item, &e, t->name, path, f));
    t->dtype = read_dtype(e.dtype);
    if (t->dtype == FILE_NONE)
        return fail(f, TENSOR "dtype %s is unknown; known: %s", path, t->name, SPAN_WORDS(e.dtype),
                    DTYPE_WORDS(ALL_FILE_DTYPES));
    RETURN_IF_NOT_OK(read_shape(e.shape, t, path, f));
    RETURN_IF_NOT_OK(read_offsets(e.offsets, t, path, section, f));
    uint64_t bytes;
    if (tensor_bytes(dtype_bits(t->dtype), t->ndim, t->shape, &bytes) != 0)
        return fail(f, TENSOR "shape %s of %s is more than 2^63 - 1 bytes, or ends within a byte", path, t->name,
                    SHAPE_WORDS(t->ndim, t->shape), dtype_name(t->dtype));
    if (bytes != t->end - t->begin)
        return fail(f, TENSOR "data_offsets hold %" PRIu64 " bytes, but shape %s of %s needs %" PRIu64, path, t->name,
                    t->end - t->begin, SHAPE_WORDS(t->ndim, t->shape), dtype_name(t->dtype), bytes);
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct st_tensor *s = *(const struct st_tensor *const *)a, *t = *(const struct st_tensor *const *)b;
    return s->begin != t->begin ? ORDER(s->begin, t->begin) : ORDER(s->end, t->end);
}

/* Checks that the tensors cover each byte of the data section exactly once. */
static int check_layout(const struct st_file *file, const char *path, uint64_t section, struct fail *f)
{
    OWNED const struct st_tensor **sorted = malloc((file->count + 1) * sizeof *sorted);
    if (!sorted)
        return fail_system(f, "%s: out of memory for %zu tensors", path, file->count);
    for (size_t i = 0; i < file->count; i++)
        sorted[i] = &file->tensors[i];
    qsort(sorted, file->count, sizeof *sorted, by_offset);
    uint64_t at = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct st_tensor *t = sorted[i];
        if (t->begin < at)
            return fail(f, TENSOR "begins at byte %" PRIu64 " of the data, inside '%.200s', which ends at %" PRIu64,
                        path, t->name, t->begin, sorted[i - 1]->name, at);
        if (t->begin > at)
            return fail(f,
                        TENSOR "begins at byte %" PRIu64 " of the data, but what is before it ends at %" PRIu64
                               "; the format allows no holes",
                        path, t->name, t->begin, at);
        at = t->end;
    }
    if (at == section)
        return 0;
    return fail(f, "%s: the tensors end at byte %" PRIu64 " of the data, but the data section has %" PRIu64 " bytes",
                path, at, section);
}

static int read_metadata(struct st_file *file, struct json_span item, const char *path, struct fail *f)
{
    struct json_span key, value;
    if (file->metadata)
        return fail(f, "%s: __metadata__ occurs twice", path);
    if (*item.text != '{')
        return fail(f, "%s: __metadata__ must be an object, not %s", path, SPAN_WORDS(item));
    file->metadata = calloc(json_span_count(item) + 1, sizeof *file->metadata);
    if (!file->metadata)
        return fail_system(f, "%s: out of memory for __metadata__", path);
    for (struct json_walk w = json_enter(item.text); json_step(&w, &key, &value);) {
        if (*value.text != '"')
            return fail(f, "%s: __metadata__ '%.*s' must be a string, not %s", path,
                        key.length < 200 ? (int)key.length - 2 : 200, key.text + 1, SPAN_WORDS(value));
        struct st_pair *pair = &file->metadata[file->metadata_count++];
        pair->name = json_span_string(key);
        pair->value = json_span_string(value);
        if (!pair->name || !pair->value)
            return fail_system(f, "%s: out of memory for __metadata__", path);
    }
    bool failed;
    const char *twice = named_repeated(file->metadata, file->metadata_count, sizeof *file->metadata, &failed);
    return failed  ? fail_system(f, "%s: out of memory for __metadata__", path)
           : twice ? fail(f, "%s: __metadata__ has the key '%.200s' twice", path, twice)
                   : 0;
}

static int read_header(struct st_file *file, const char *header, uint64_t section, struct fail *f)
{
    const char *path = file->map.path;
    const size_t count = json_span_count((struct json_span){.text = header});
    struct json_span key, value;
    file->tensors = calloc(count + 1, sizeof *file->tensors);
    if (!file->tensors)
        return fail_system(f, "%s: out of memory for %zu tensors", path, count);
    const unsigned char *data = file->map.data + (file->map.size - section);
    for (struct json_walk w = json_enter(header); json_step(&w, &key, &value);) {
        if (json_span_is(key, "__metadata__")) {
            RETURN_IF_NOT_OK(read_metadata(file, value, path, f));
            continue;
        }
        struct st_tensor *t = &file->tensors[file->count];
        t->name = json_span_string(key);
        if (!t->name)
            return fail_system(f, "%s: out of memory for %zu tensors", path, file->count);
        file->count++;
        RETURN_IF_NOT_OK(read_tensor(value, t, path, section, f));
        t->data = data + t->begin;
    }
    named_sort(file->tensors, file->count, sizeof *file->tensors);
    const char *twice = named_twice(file->tensors, file->count, sizeof *file->tensors);
    if (twice)
        return fail(f, TENSOR "occurs twice", path, twice);
    return check_layout(file, path, section, f);
}

static int read_file(struct st_file *file, struct fail *f)
{
    const struct mapped *map = &file->map;
    uint64_t length;
    if (map->size <= sizeof length + 1 || map->data[8] != '{')
        RETURN_IF_NOT_OK(file_kind_refuse(map->path, map->data, map->size, f));
    if (map->size < sizeof length)
        return fail(f, "%s: is not a safetensors file: %zu bytes are too short for the 8 bytes of header length",
                    map->path, map->size);
    memcpy(&length, map->data, sizeof length);
    const uint64_t rest = map->size - sizeof length;
    if (length > JSON_MAX_BYTES)
        return fail(f, "%s: is not a safetensors file: its header would have %" PRIu64 " bytes; at most %d are allowed",
                    map->path, length, JSON_MAX_BYTES);
    if (length > rest)
        return fail(f,
                    "%s: is cut off or not a safetensors file: the header has %" PRIu64 " bytes, %" PRIu64
                    " are there; fetch it again",
                    map->path, length, rest);
    const unsigned char *text = map->data + sizeof length;
    if (length == 0 || text[0] != '{')
        return fail(f, "%s: is not a safetensors file: the header must begin with '{'", map->path);
    OWNED char *header;
    RETURN_IF_NOT_OK(mapped_hold(map, 0, sizeof length + (size_t)length, f));
    RETURN_IF_NOT_OK(json_check(&header, map->path, "header", text, (size_t)length, JSON_STRICT, f));
    return read_header(file, header, rest - length, f);
}

int st_open_mapped(struct st_file *file, struct mapped *map, struct fail *f)
{
    *file = (struct st_file){.map = *map};
    *map = (struct mapped){0};
    const int result = read_file(file, f);
    if (result != 0)
        st_close(file);
    return result;
}

int st_open(struct st_file *file, const char *path, struct fail *f)
{
    struct mapped map;
    *file = (struct st_file){0};
    RETURN_IF_NOT_OK(mapped_open(&map, path, f));
    return st_open_mapped(file, &map, f);
}

const struct st_tensor *st_find(const struct st_file *file, const char *name)
{
    return named_find(file->tensors, file->count, sizeof *file->tensors, name);
}

int st_borrow(const struct st_tensor *t, struct fail *f)
{
    return t ? mapped_borrow(t->data, (size_t)(t->end - t->begin), f) : QOBS_OK;
}

void st_release(const struct st_tensor *t)
{
    if (t)
        mapped_release(t->data, (size_t)(t->end - t->begin));
}

void st_close(struct st_file *file)
{
    named_free(file->tensors, file->count, sizeof *file->tensors, 1);
    named_free(file->metadata, file->metadata_count, sizeof *file->metadata, 2);
    mapped_close(&file->map);
    *file = (struct st_file){0};
}
