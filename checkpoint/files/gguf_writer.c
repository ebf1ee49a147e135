/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Headers of GGUF files. */
#include <stdlib.h>
#include <string.h>

#include "files/gguf.h"

/* Bytes that are counted first, while data is NULL, and then written. */
struct byte_writer {
    unsigned char *data;
    size_t size;
};

static void put_bytes(struct byte_writer *w, const void *bytes, size_t size)
{
    if (w->data && size > 0)
        memcpy(w->data + w->size, bytes, size);
    w->size += size;
}

static void put_number(struct byte_writer *w, uint64_t number, unsigned bytes)
{
    unsigned char little[8];
    for (unsigned i = 0; i < bytes; i++)
        little[i] = (unsigned char)(number >> 8 * i);
    put_bytes(w, little, bytes);
}

static void put_name(struct byte_writer *w, const char *name)
{
    put_number(w, strlen(name), 8);
    put_bytes(w, name, strlen(name));
}

static void put_key(struct byte_writer *w, const struct gguf_key *key)
{
    put_name(w, key->name);
    if (key->is_array)
        put_number(w, GGUF_ARRAY, 4);
    put_number(w, key->kind, 4);
    if (key->is_array)
        put_number(w, key->count, 8);
    put_bytes(w, key->at, gguf_values_size(key));
}

static void put_tensor(struct byte_writer *w, const struct gguf_tensor *t)
{
    put_name(w, t->name);
    put_number(w, (uint64_t)t->ndim, 4);
    for (int d = t->ndim - 1; d >= 0; d--)
        put_number(w, (uint64_t)t->shape[d], 8);
    put_number(w, (uint64_t)t->type.number, 4);
    put_number(w, t->offset, 8);
}

static uint64_t alignment_of(const struct gguf_key *keys, size_t count)
{
    uint64_t alignment = 32;
    for (size_t i = 0; i < count; i++)
        if (strcmp(keys[i].name, "general.alignment") == 0)
            gguf_whole_number(&keys[i], &alignment);
    return alignment;
}

static uint64_t padded(uint64_t bytes, uint64_t alignment) { return (bytes + alignment - 1) & ~(alignment - 1); }

int gguf_header_make(struct gguf_header *h, const struct gguf_key *keys, size_t key_count, struct gguf_tensor *tensors,
                     size_t count, struct fail *f)
{
    const uint64_t alignment = alignment_of(keys, key_count);
    struct byte_writer w = {NULL, 0};
    uint64_t next = 0;
    *h = (struct gguf_header){0};
    for (size_t i = 0; i < count; i++) {
        tensors[i].offset = next;
        next += padded(tensors[i].bytes, alignment);
    }
    for (int pass = 0; pass < 2; pass++) {
        w.size = 0;
        put_bytes(&w, "GGUF", 4);
        put_number(&w, 3, 4);
        put_number(&w, count, 8);
        put_number(&w, key_count, 8);
        for (size_t i = 0; i < key_count; i++)
            put_key(&w, &keys[i]);
        for (size_t i = 0; i < count; i++)
            put_tensor(&w, &tensors[i]);
        h->size = (size_t)padded(w.size, alignment);
        if (!w.data)
            w.data = h->data = calloc(h->size, 1);
        if (!w.data)
            return NO_MEMORY(f, "the header of a GGUF file");
    }
    h->file_bytes = h->size + next;
    return QOBS_OK;
}
