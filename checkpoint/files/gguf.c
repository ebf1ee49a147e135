/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "files/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/byte_reader.h"
#include "files/file_kind.h"
#include "files/text.h"

/* Bytes of a value of each kind; 0: no number. */
static const unsigned char sizes[GGUF_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

#define MOST_ELEMENTS ((uint64_t)1 << 48)

static int cut_off(const struct gguf_file *g, const char *what, size_t i, struct fail *f)
{
    return fail(f, "%s: is damaged or cut off in %s %zu", g->map.path, what, i);
}

/* Copies a name. `what` and `i` tell which one in messages. */
static int read_name(const struct gguf_file *g, struct byte_reader *r, const char *what, size_t i, char **name,
                     struct fail *f)
{
    const uint64_t length = take_number(r, 8);
    const unsigned char *at = take_bytes(r, length);
    if (!at)
        return cut_off(g, what, i, f);
    if (length == 0 || length > GGUF_LONGEST_NAME || memchr(at, 0, (size_t)length))
        return fail(f, "%s: the name of %s %zu has %" PRIu64 " bytes%s; allowed are 1 to %d without a zero byte",
                    g->map.path, what, i, length, length > 0 && length <= GGUF_LONGEST_NAME ? " with a zero byte" : "",
                    GGUF_LONGEST_NAME);
    *name = malloc((size_t)length + 1);
    if (!*name)
        return NO_MEMORY(f, "names of a GGUF file");
    memcpy(*name, at, (size_t)length);
    (*name)[length] = '\0';
    return QOBS_OK;
}

static int refuse_repeated(const struct gguf_file *g, const void *items, size_t count, size_t size, const char *what,
                           struct fail *f)
{
    bool failed;
    const char *twice = named_repeated(items, count, size, &failed);
    if (failed)
        return NO_MEMORY(f, "names of a GGUF file");
    return twice ? fail(f, "%s: %s '%.200s' is there twice", g->map.path, what, twice) : QOBS_OK;
}

/* ---- Keys -------------------------------------------------------------------------------------------------------- */

static void skip_values(struct byte_reader *r, enum gguf_kind kind, uint64_t count)
{
    if (kind != GGUF_STRING) {
        r->failed |= count > r->map->size;
        take_bytes(r, r->failed ? 0 : count * sizes[kind]);
    } else
        for (uint64_t i = 0; i < count && !r->failed; i++)
            take_bytes(r, take_number(r, 8));
}

static int read_key(struct gguf_file *g, struct byte_reader *r, struct fail *f)
{
    const size_t i = g->key_count;
    struct gguf_key *key = list_add(&g->keys, &g->key_count, sizeof *key);
    if (!key)
        return NO_MEMORY(f, "keys of a GGUF file");
    RETURN_IF_NOT_OK(read_name(g, r, "key", i, &key->name, f));
    uint64_t kind = take_number(r, 4);
    key->is_array = kind == GGUF_ARRAY;
    kind = key->is_array ? take_number(r, 4) : kind;
    key->count = key->is_array ? take_number(r, 8) : 1;
    if (kind >= GGUF_KINDS || kind == GGUF_ARRAY)
        return fail(f, "%s: key '%.200s' has values of kind %" PRIu64 "%s", g->map.path, key->name, kind,
                    kind == GGUF_ARRAY ? ", arrays of arrays; llama.cpp does not read them" : "; known are 0 to 12");
    key->kind = (enum gguf_kind)kind;
    key->at = g->map.data + r->at;
    skip_values(r, key->kind, key->count);
    return r->failed ? cut_off(g, "key", i, f) : QOBS_OK;
}

static int read_keys(struct gguf_file *g, struct byte_reader *r, uint64_t count, struct fail *f)
{
    if (count > GGUF_MOST_KEYS)
        return fail(f, "%s: has %" PRIu64 " keys, at most %d are allowed", g->map.path, count, GGUF_MOST_KEYS);
    while (g->key_count < count)
        RETURN_IF_NOT_OK(read_key(g, r, f));
    RETURN_IF_NOT_OK(refuse_repeated(g, g->keys, g->key_count, sizeof *g->keys, "key", f));
    const struct gguf_key *key = gguf_find_key(g, "general.alignment");
    g->alignment = key && key->kind == GGUF_U32 && !key->is_array ? number_of_bytes(key->at, 4) : key ? 0 : 32;
    if (g->alignment == 0 || (g->alignment & (g->alignment - 1)) != 0)
        return fail(f, "%s: general.alignment is no power of 2 of kind %d", g->map.path, GGUF_U32);
    return QOBS_OK;
}

const struct gguf_key *gguf_find_key(const struct gguf_file *file, const char *name)
{
    for (size_t i = 0; i < file->key_count; i++)
        if (strcmp(file->keys[i].name, name) == 0)
            return &file->keys[i];
    return NULL;
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

static bool find_type(uint64_t number, qobs_gguf_type *type)
{
    const char *name;
    *type = (qobs_gguf_type){.struct_size = sizeof *type};
    for (size_t i = 0; (name = qobs_gguf_type_name(i)); i++)
        if (qobs_gguf_describe_type(name, type, NULL) == QOBS_OK && (uint64_t)type->number == number)
            return true;
    return false;
}

/* Reads the shape, which files have in the other order. Returns false if it has too many elements. */
static bool read_shape(struct byte_reader *r, struct gguf_tensor *t)
{
    bool fits = true;
    t->elements = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        const uint64_t size = take_number(r, 8);
        fits = fits && size <= MOST_ELEMENTS && (size == 0 || t->elements <= MOST_ELEMENTS / size);
        t->shape[d] = fits ? (int64_t)size : 0;
        t->elements *= (uint64_t)t->shape[d];
    }
    return fits;
}

static int read_tensor(struct gguf_file *g, struct byte_reader *r, struct fail *f)
{
    const size_t i = g->count;
    struct gguf_tensor *t = list_add(&g->tensors, &g->count, sizeof *t);
    if (!t)
        return NO_MEMORY(f, "tensors of a GGUF file");
    RETURN_IF_NOT_OK(read_name(g, r, "tensor", i, &t->name, f));
    const uint64_t dims = take_number(r, 4);
    if (dims > GGUF_DIMS)
        return fail(f, "%s: '%.200s' has %" PRIu64 " dimensions, at most %d are allowed", g->map.path, t->name, dims,
                    GGUF_DIMS);
    t->ndim = (int)dims;
    const bool fits = read_shape(r, t);
    const uint64_t type = take_number(r, 4);
    t->offset = take_number(r, 8);
    if (r->failed)
        return cut_off(g, "tensor", i, f);
    if (!fits)
        return fail(f, "%s: '%.200s' has more than 2^48 elements", g->map.path, t->name);
    if (!find_type(type, &t->type))
        return fail(f, "%s: '%.200s' has type %" PRIu64 ", which is not known", g->map.path, t->name, type);
    const int64_t columns = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    if (columns % t->type.block_elements != 0)
        return fail(f, "%s: '%.200s' has rows of %" PRId64 ", %s needs a multiple of %" PRId64, g->map.path, t->name,
                    columns, t->type.name, t->type.block_elements);
    t->bytes = t->elements / (uint64_t)t->type.block_elements * t->type.block_size;
    return QOBS_OK;
}

static uint64_t padded(const struct gguf_file *g, uint64_t bytes)
{
    return (bytes + g->alignment - 1) & ~(g->alignment - 1);
}

/* Tensors follow each other, each padded to the alignment. */
static int place_tensors(struct gguf_file *g, size_t end_of_header, struct fail *f)
{
    const uint64_t start = padded(g, end_of_header), left = g->map.size > start ? g->map.size - start : 0;
    uint64_t next = 0;
    for (size_t i = 0; i < g->count; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        if (t->offset != next)
            return fail(f, "%s: '%.200s' begins at byte %" PRIu64 " of the data, expected is %" PRIu64, g->map.path,
                        t->name, t->offset, next);
        if (next > left || t->bytes > left - next)
            return fail(f, "%s: is cut off: '%.200s' ends at byte %" PRIu64 ", the file has %zu; fetch it again",
                        g->map.path, t->name, start + next + t->bytes, g->map.size);
        t->data = t->bytes > 0 ? g->map.data + start + next : g->map.data;
        next += padded(g, t->bytes);
    }
    return QOBS_OK;
}

static int read_tensors(struct gguf_file *g, struct byte_reader *r, uint64_t count, struct fail *f)
{
    if (count > GGUF_MOST_TENSORS)
        return fail(f, "%s: has %" PRIu64 " tensors, at most %d are allowed", g->map.path, count, GGUF_MOST_TENSORS);
    while (g->count < count)
        RETURN_IF_NOT_OK(read_tensor(g, r, f));
    RETURN_IF_NOT_OK(refuse_repeated(g, g->tensors, g->count, sizeof *g->tensors, "tensor", f));
    return place_tensors(g, r->at, f);
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

bool is_gguf(const void *data, size_t size) { return size >= 4 && memcmp(data, "GGUF", 4) == 0; }

bool is_gguf_file(const char *path)
{
    char begin[4] = "";
    struct stat status;
    FILE *file = stat(path, &status) == 0 && S_ISREG(status.st_mode) ? fopen(path, "rb") : NULL;
    const bool found = file && fread(begin, 1, sizeof begin, file) == sizeof begin && is_gguf(begin, sizeof begin);
    if (file)
        fclose(file);
    return found;
}

static int read_file(struct gguf_file *g, struct fail *f)
{
    struct byte_reader r = {.map = &g->map, .at = 4};
    if (!is_gguf(g->map.data, g->map.size)) {
        RETURN_IF_NOT_OK(file_kind_refuse(g->map.path, g->map.data, g->map.size, f));
        return fail(f, "%s: is no GGUF file: it begins with other bytes", g->map.path);
    }
    const uint64_t version = take_number(&r, 4), tensors = take_number(&r, 8), keys = take_number(&r, 8);
    if (r.failed)
        return fail(f, "%s: is cut off: it has %zu bytes, the header of GGUF 24", g->map.path, g->map.size);
    if (version != 0 && (version & 0xffff) == 0)
        return fail(f, "%s: is big-endian; gguf-convert-endian of PyPI's gguf makes it little-endian", g->map.path);
    if (version != 2 && version != 3)
        return fail(f, "%s: has version %" PRIu64 " of GGUF; 2 and 3 can be read", g->map.path, version);
    g->version = (unsigned)version;
    RETURN_IF_NOT_OK(read_keys(g, &r, keys, f));
    return read_tensors(g, &r, tensors, f);
}

int gguf_open_mapped(struct gguf_file *file, struct mapped *map, struct fail *f)
{
    *file = (struct gguf_file){.map = *map};
    *map = (struct mapped){0};
    const int status = read_file(file, f);
    if (status != QOBS_OK)
        gguf_close(file);
    return status;
}

int gguf_open(struct gguf_file *file, const char *path, struct fail *f)
{
    struct mapped map;
    *file = (struct gguf_file){0};
    RETURN_IF_NOT_OK(mapped_open(&map, path, f));
    return gguf_open_mapped(file, &map, f);
}

void gguf_close(struct gguf_file *file)
{
    named_free(file->keys, file->key_count, sizeof *file->keys, 1);
    named_free(file->tensors, file->count, sizeof *file->tensors, 1);
    mapped_close(&file->map);
    *file = (struct gguf_file){0};
}

size_t gguf_values_size(const struct gguf_key *key)
{
    if (key->kind != GGUF_STRING)
        return (size_t)key->count * sizes[key->kind];
    const unsigned char *at = key->at;
    for (uint64_t i = 0; i < key->count; i++)
        at += 8 + number_of_bytes(at, 8);
    return (size_t)(at - key->at);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* A whole number with its sign in all bits. */
static uint64_t extended(uint64_t bits, enum gguf_kind kind)
{
    const bool is_signed = kind == GGUF_I8 || kind == GGUF_I16 || kind == GGUF_I32;
    const unsigned width = 8 * sizes[kind];
    return is_signed && bits >> (width - 1) != 0 ? bits | ~(uint64_t)0 << width : bits;
}

bool gguf_whole_number(const struct gguf_key *key, uint64_t *number)
{
    const bool whole = sizes[key->kind] > 0 && key->kind != GGUF_F32 && key->kind != GGUF_F64 && key->kind != GGUF_BOOL;
    if (whole && !key->is_array)
        *number = extended(number_of_bytes(key->at, sizes[key->kind]), key->kind);
    return whole && !key->is_array;
}

static double real_of(uint64_t bits, enum gguf_kind kind)
{
    const uint32_t half = (uint32_t)bits;
    float single;
    double number;
    memcpy(&single, &half, sizeof single);
    memcpy(&number, &bits, sizeof number);
    return kind == GGUF_F32 ? (double)single : number;
}

const unsigned char *gguf_value_text(enum gguf_kind kind, const unsigned char *at, char *text, size_t size)
{
    const uint64_t bits = number_of_bytes(at, kind == GGUF_STRING ? 8 : sizes[kind]);
    if (kind == GGUF_STRING)
        snprintf(text, size, "%.*s", (int)(bits < size ? bits : size), (const char *)at + 8);
    else if (kind == GGUF_F32 || kind == GGUF_F64)
        snprintf(text, size, "%.*g", kind == GGUF_F32 ? 7 : 15, real_of(bits, kind));
    else if (kind == GGUF_BOOL)
        snprintf(text, size, "%s", bits ? "true" : "false");
    else if (kind == GGUF_U8 || kind == GGUF_U16 || kind == GGUF_U32 || kind == GGUF_U64)
        snprintf(text, size, "%" PRIu64, bits);
    else
        snprintf(text, size, "%" PRId64, (int64_t)extended(bits, kind));
    return at + (kind == GGUF_STRING ? 8 + bits : sizes[kind]);
}

int gguf_read_numbers(const char *type, int64_t rows, int64_t columns, const void *blocks, size_t bytes, float *numbers,
                      qobs_error *error)
{
    const qobs_gguf_dequantize_args args = {.struct_size = sizeof args,
                                            .type = type,
                                            .rows = rows,
                                            .columns = columns,
                                            .blocks = blocks,
                                            .blocks_size = bytes,
                                            .out = numbers,
                                            .out_size = (size_t)(rows * columns) * sizeof *numbers};
    return qobs_gguf_dequantize(&args, error);
}
