/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Any bytes as a GGUF file: refused with a message, or every value and every byte of a tensor can be read. */
#include "file.h"
#include "files/gguf.h"

volatile unsigned touched;

static void read_key(const struct gguf_file *file, const struct gguf_key *key)
{
    char text[64];
    const unsigned char *at = key->at;
    uint64_t number;
    must(gguf_find_key(file, key->name) == key);
    for (uint64_t i = 0; i < key->count && i < 1000; i++) {
        at = gguf_value_text(key->kind, at, text, sizeof text);
        must(strlen(text) < sizeof text && at <= file->map.data + file->map.size);
    }
    if (gguf_whole_number(key, &number))
        must(!key->is_array && key->count == 1);
}

static void read_tensor(const struct gguf_file *file, const struct gguf_tensor *t)
{
    uint64_t elements = 1;
    for (int d = 0; d < t->ndim; d++)
        elements *= (uint64_t)t->shape[d];
    must(t->ndim <= GGUF_DIMS && elements == t->elements);
    must(t->bytes * (uint64_t)t->type.block_elements == t->elements * t->type.block_size);
    must(t->data >= file->map.data && t->bytes <= (uint64_t)(file->map.data + file->map.size - t->data));
    for (uint64_t i = 0; i < t->bytes; i += 1 + t->bytes / 64)
        touched += t->data[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mapped map;
    struct gguf_file file;
    struct fail f = {.message = ""};
    file_fill(100, data, size);
    file_map(&map, 100);
    if (gguf_open_mapped(&file, &map, &f) == 0) {
        for (size_t i = 0; i < file.key_count; i++)
            read_key(&file, &file.keys[i]);
        for (size_t i = 0; i < file.count; i++)
            read_tensor(&file, &file.tensors[i]);
        gguf_close(&file);
    } else {
        must(f.message[0] != '\0' && !file.map.data);
    }
    must(!map.data);
    return 0;
}
