/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* GGUF, as far as importance matrices need it: the list of tensors, and general.alignment. All numbers are
 * little-endian. Source: docs/gguf.md of ggml. */
#include <stdlib.h>
#include <string.h>

#include "files/imatrix.h"
#include "files/text.h"

enum { STRING = 8, ARRAY = 9, TYPE_U32 = 4, TENSOR_F32 = 0, MAX_TENSOR_DIMS = 4, MAX_TENSOR_NAME = 4096 };

/* Bytes of a value of each type of metadata; 0: no number. */
static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct gguf_tensor {
    const unsigned char *name;
    size_t length;
    uint64_t dims[MAX_TENSOR_DIMS], elements, offset;
    uint32_t dim_count, type;
};

static const unsigned char *take_string(struct imatrix_reader *g, uint64_t *length)
{
    *length = imatrix_number(g, 8);
    return imatrix_take(g, *length);
}

/* Skips an array of numbers or strings. */
static void skip_array(struct imatrix_reader *g)
{
    const uint64_t type = imatrix_number(g, 4), count = imatrix_number(g, 8);
    const unsigned size = type < sizeof sizes ? sizes[type] : 0;
    uint64_t length;
    if (size > 0 && count <= g->map->size / size)
        imatrix_take(g, count * size);
    else if (type == STRING)
        for (uint64_t i = 0; i < count && !g->failed; i++)
            take_string(g, &length);
    else
        g->failed = true;
}

/* Skips the metadata but for the alignment of the tensors. */
static void read_metadata(struct imatrix_reader *g, uint64_t count, uint64_t *alignment)
{
    static const char key[] = "general.alignment";
    uint64_t length;
    for (uint64_t i = 0; i < count && !g->failed; i++) {
        const unsigned char *name = take_string(g, &length);
        const bool is_alignment = name && length == sizeof key - 1 && memcmp(name, key, sizeof key - 1) == 0;
        const uint64_t type = imatrix_number(g, 4);
        if (is_alignment && type == TYPE_U32)
            *alignment = imatrix_number(g, 4);
        else if (type == ARRAY)
            skip_array(g);
        else if (type == STRING)
            take_string(g, &length);
        else if (type < sizeof sizes)
            imatrix_take(g, sizes[type]);
        else
            g->failed = true;
    }
}

static void read_tensor(struct imatrix_reader *g, struct gguf_tensor *t)
{
    uint64_t length;
    t->name = take_string(g, &length);
    t->length = (size_t)length;
    t->dim_count = (uint32_t)imatrix_number(g, 4);
    t->elements = 1;
    if (length > MAX_TENSOR_NAME || t->dim_count > MAX_TENSOR_DIMS)
        g->failed = true;
    for (uint32_t d = 0; d < t->dim_count && !g->failed; d++) {
        t->dims[d] = imatrix_number(g, 8);
        if (t->dims[d] > 0 && t->elements > g->map->size / t->dims[d])
            g->failed = true;
        t->elements *= g->failed ? 0 : t->dims[d];
    }
    t->type = (uint32_t)imatrix_number(g, 4);
    t->offset = imatrix_number(g, 8);
}

/* Returns the values of a tensor of floats, or NULL if they are not all in the file. */
static const unsigned char *values_of(const struct imatrix_reader *g, const struct gguf_tensor *t)
{
    const uint64_t left = g->map->size - g->at;
    return t->type == TENSOR_F32 && t->offset <= left && t->elements <= (left - t->offset) / 4
               ? g->map->data + g->at + t->offset
               : NULL;
}

static int compare_tensors(const void *a, const void *b)
{
    const struct gguf_tensor *s = a, *t = b;
    const int order = memcmp(s->name, t->name, s->length < t->length ? s->length : t->length);
    return order != 0 ? order : (s->length > t->length) - (s->length < t->length);
}

/* Finds "NAME.counts" for "NAME.in_sum2". */
static const struct gguf_tensor *find_counts(const struct gguf_tensor *tensors, size_t count,
                                             const struct gguf_tensor *sums, size_t name)
{
    static const unsigned char ending[] = {'.', 'c', 'o', 'u', 'n', 't', 's'};
    unsigned char text[MAX_TENSOR_NAME + sizeof ending];
    for (size_t i = 0; i < name; i++)
        text[i] = sums->name[i];
    memcpy(text + name, ending, sizeof ending);
    const struct gguf_tensor key = {.name = text, .length = name + sizeof ending};
    return bsearch(&key, tensors, count, sizeof key, compare_tensors);
}

static int add_entries(struct imatrix *im, const struct imatrix_reader *g, struct gguf_tensor *tensors, size_t count,
                       struct fail *f)
{
    static const char ending[] = ".in_sum2";
    qsort(tensors, count, sizeof *tensors, compare_tensors);
    for (size_t i = 0; i < count; i++) {
        const struct gguf_tensor *t = &tensors[i];
        const size_t tail = sizeof ending - 1;
        if (t->length <= tail || memcmp(t->name + t->length - tail, ending, tail) != 0)
            continue;
        const struct gguf_tensor *counts = find_counts(tensors, count, t, t->length - tail);
        struct imatrix_entry *entry = imatrix_add(im, t->name, t->length - tail, f);
        if (!entry)
            return failure_status(f);
        entry->values = values_of(g, t);
        entry->counts = counts ? values_of(g, counts) : NULL;
        entry->value_count = t->elements;
        entry->matrices = t->dim_count > 0 && t->dims[0] > 0 ? t->elements / t->dims[0] : 0;
        if (!entry->values || !entry->counts || entry->matrices == 0 || counts->elements != entry->matrices)
            return fail(f, "%s: '%.200s' has no F32 tensors in_sum2 and counts that fit together", im->map.path,
                        entry->name);
    }
    return im->count > 0 ? 0 : fail(f, "%s: is no importance matrix: it has no tensor *.in_sum2", im->map.path);
}

int imatrix_read_gguf(struct imatrix *im, struct fail *f)
{
    enum { LEAST_TENSOR_BYTES = 24 };
    struct imatrix_reader g = {.map = &im->map, .at = 4};
    uint64_t alignment = 32;
    const uint64_t version = imatrix_number(&g, 4), count = imatrix_number(&g, 8), metadata = imatrix_number(&g, 8);
    if (!g.failed && version != 2 && version != 3)
        return fail(f, "%s: has version %llu of GGUF; 2 and 3 can be read", im->map.path, (unsigned long long)version);
    read_metadata(&g, metadata, &alignment);
    if (g.failed || count > im->map.size / LEAST_TENSOR_BYTES || alignment == 0)
        return fail(f, "%s: is damaged or cut off in its metadata", im->map.path);
    OWNED struct gguf_tensor *tensors = calloc((size_t)count + 1, sizeof *tensors);
    if (!tensors)
        return fail_system(f, "%s: no memory for %llu tensors", im->map.path, (unsigned long long)count);
    for (uint64_t i = 0; i < count && !g.failed; i++)
        read_tensor(&g, &tensors[i]);
    if (!g.failed)
        imatrix_take(&g, (alignment - g.at % alignment) % alignment);
    return g.failed ? fail(f, "%s: is damaged or cut off in its list of tensors", im->map.path)
                    : add_entries(im, &g, tensors, (size_t)count, f);
}
