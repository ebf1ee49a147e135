/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Parses the header with a small recursive-descent parser that accepts only its literal. */
#include "files/npy.h"

#include <inttypes.h>
#include <string.h>

#include "files/file_kind.h"

static const char magic[] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

/* The header is the literal of a Python dict with three keys, for example
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * This parser accepts only that form, with the keys in any order. */
struct cursor {
    const char *start, *at, *end;
    const char *path;
    struct fail *f;
};

static int expected(const struct cursor *c, const char *token)
{
    return fail(c->f, "%s: .npy header: %s expected at its byte %td", c->path, token, c->at - c->start);
}

static void skip_space(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\r' || *c->at == '\n'))
        c->at++;
}

/* Skips white space. If `wanted` follows, skips it, too, and returns 1. */
static int accept(struct cursor *c, char wanted)
{
    skip_space(c);
    if (c->at == c->end || *c->at != wanted)
        return 0;
    c->at++;
    return 1;
}

/* Reads a string in single or double quotes, without escapes. Stores it with a final '\0'. */
static int read_string(struct cursor *c, char *text, size_t size)
{
    size_t length = 0;
    const char quote = accept(c, '\'') ? '\'' : accept(c, '"') ? '"' : '\0';
    if (!quote)
        return expected(c, "a quoted string");
    for (; c->at < c->end && *c->at != quote; c->at++) {
        if (*c->at == '\\' || *c->at < 0x20 || length + 1 == size)
            return expected(c, "the end of a short plain string");
        text[length++] = *c->at;
    }
    text[length] = '\0';
    return accept(c, quote) ? 0 : expected(c, "the closing quote");
}

static int read_word(struct cursor *c, const char *word)
{
    const size_t length = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return 0;
    c->at += length;
    return 1;
}

static int read_dim(struct cursor *c, int64_t *dim, int index)
{
    const int negative = accept(c, '-');
    const char *first = c->at;
    int64_t value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        if (value > (INT64_MAX - 9) / 10)
            return fail(c->f, "%s: shape[%d] is more than 2^63 - 1", c->path, index);
        value = 10 * value + (*c->at - '0');
    }
    if (c->at == first || (*first == '0' && c->at > first + 1))
        return expected(c, "a whole number");
    if (negative)
        return fail(c->f, "%s: shape[%d] is -%" PRId64 "; 0 or more is needed", c->path, index, value);
    *dim = value;
    return 0;
}

static int read_shape(struct cursor *c, struct npy_file *file)
{
    int comma = 1;
    if (!accept(c, '('))
        return expected(c, "'(' of a shape");
    while (!accept(c, ')')) {
        if (!comma)
            return expected(c, "',' or ')'");
        if (file->ndim == TENSOR_MAX_DIMS)
            return fail(c->f, "%s: has more than %d dimensions; at most %d are supported", c->path, TENSOR_MAX_DIMS,
                        TENSOR_MAX_DIMS);
        skip_space(c);
        RETURN_IF_NOT_OK(read_dim(c, &file->shape[file->ndim], file->ndim));
        file->ndim++;
        comma = accept(c, ',');
    }
    if (file->ndim == 1 && !comma) /* in Python, (3) is a number */
        return expected(c, "',' in a shape of one dimension");
    return 0;
}

static int read_descr(struct cursor *c, struct npy_file *file)
{
    static const struct {
        char descr[3];
        enum file_dtype dtype;
    } known[] = {
        {"f4", FILE_F32}, {"f8", FILE_F64}, {"f2", FILE_F16}, {"i8", FILE_I64}, {"i4", FILE_I32}, {"i2", FILE_I16},
        {"i1", FILE_I8},  {"u8", FILE_U64}, {"u4", FILE_U32}, {"u2", FILE_U16}, {"u1", FILE_U8},  {"b1", FILE_BOOL},
    };
    char text[32];
    skip_space(c);
    if (c->at < c->end && *c->at == '[')
        return fail(c->f, "%s: structured types are not supported; an array of numbers is needed", c->path);
    RETURN_IF_NOT_OK(read_string(c, text, sizeof text));
    const char *name = text + (strchr("<>=|", text[0]) && text[0] != '\0');
    if (name[0] == 'O')
        return fail(c->f, "%s: type '%s' holds Python objects, which are not supported", c->path, text);
    if (text[0] == '>')
        return fail(c->f, "%s: type '%s' is big-endian; only little-endian is supported", c->path, text);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const int fits = text[0] == '<' || text[0] == '=' || (text[0] == '|' && name[1] == '1');
        if (fits && strcmp(known[i].descr, name) == 0) {
            file->dtype = known[i].dtype;
            return 0;
        }
    }
    return fail(c->f,
                "%s: type '%s' is not supported; <f2, <f4, <f8, <i2, <i4, <i8, <u2, <u4, <u8, |i1, |u1 and |b1 are",
                c->path, text);
}

static int read_header(struct cursor *c, struct npy_file *file, int *fortran)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    int seen[3] = {0};
    int comma = 1;
    if (!accept(c, '{'))
        return expected(c, "'{'");
    while (!accept(c, '}')) {
        char key[16];
        size_t k = 0;
        if (!comma)
            return expected(c, "',' or '}'");
        RETURN_IF_NOT_OK(read_string(c, key, sizeof key));
        while (k < 3 && strcmp(key, keys[k]) != 0)
            k++;
        if (k == 3)
            return fail(c->f, "%s: .npy header: key '%s' is unknown; known: descr, fortran_order, shape", c->path, key);
        if (seen[k]++)
            return fail(c->f, "%s: .npy header: key '%s' occurs twice", c->path, key);
        if (!accept(c, ':'))
            return expected(c, "':'");
        if (k == 0)
            RETURN_IF_NOT_OK(read_descr(c, file));
        if (k == 1 && !(*fortran = read_word(c, "True")) && !read_word(c, "False"))
            return expected(c, "True or False");
        if (k == 2)
            RETURN_IF_NOT_OK(read_shape(c, file));
        comma = accept(c, ',');
    }
    skip_space(c);
    if (c->at < c->end)
        return expected(c, "nothing more");
    for (int k = 0; k < 3; k++)
        if (!seen[k])
            return fail(c->f, "%s: .npy header: key '%s' is missing", c->path, keys[k]);
    return 0;
}

static int read_file(struct npy_file *file, struct fail *f)
{
    const struct mapped *map = &file->map;
    if (!npy_looks_like(map))
        RETURN_IF_NOT_OK(file_kind_refuse(map->path, map->data, map->size, f));
    if (!npy_looks_like(map))
        return fail(f, "%s: is not a .npy file: it does not begin with \\x93NUMPY", map->path);
    if (map->size < 10)
        return fail(f, "%s: is cut off: %zu bytes, shorter than any .npy header", map->path, map->size);
    const int major = map->data[6], minor = map->data[7];
    if (major < 1 || major > 3 || minor != 0)
        return fail(f, "%s: .npy version %d.%d is not supported; 1.0, 2.0 and 3.0 are", map->path, major, minor);
    const size_t start = major == 1 ? 10 : 12;
    if (map->size < start)
        return fail(f, "%s: is cut off: %zu bytes, shorter than any .npy header", map->path, map->size);
    size_t length = (size_t)map->data[8] | (size_t)map->data[9] << 8;
    if (major > 1)
        length |= (size_t)map->data[10] << 16 | (size_t)map->data[11] << 24;
    if (length > map->size - start)
        return fail(f, "%s: is cut off: the header has %zu bytes, only %zu are there", map->path, length,
                    map->size - start);
    const char *text = (const char *)map->data + start;
    RETURN_IF_NOT_OK(mapped_hold(map, 0, start + length, f));
    struct cursor c = {.start = text, .at = text, .end = text + length, .path = map->path, .f = f};
    int fortran = 0;
    RETURN_IF_NOT_OK(read_header(&c, file, &fortran));
    const size_t element = dtype_size(file->dtype), available = map->size - start - length;
    const char *shape = SHAPE_WORDS(file->ndim, file->shape);
    if (tensor_bytes(8 * element, file->ndim, file->shape, &file->bytes) != 0)
        return fail(f, "%s: shape %s of %s is more than 2^63 - 1 bytes", map->path, shape, dtype_name(file->dtype));
    if (available != file->bytes)
        return fail(f, "%s: %sshape %s of %s needs %" PRIu64 " bytes of data, %zu are there", map->path,
                    available < file->bytes ? "is cut off: " : "", shape, dtype_name(file->dtype), file->bytes,
                    available);
    tensor_strides(element, file->ndim, file->shape, fortran, file->strides);
    file->data = map->data + start + length;
    return 0;
}

int npy_looks_like(const struct mapped *map)
{
    return map->size >= sizeof magic && memcmp(map->data, magic, sizeof magic) == 0;
}

int npy_open_mapped(struct npy_file *file, struct mapped *map, struct fail *f)
{
    *file = (struct npy_file){.map = *map};
    *map = (struct mapped){0};
    const int result = read_file(file, f);
    if (result != 0)
        npy_close(file);
    return result;
}

void npy_close(struct npy_file *file)
{
    mapped_close(&file->map);
    *file = (struct npy_file){0};
}
