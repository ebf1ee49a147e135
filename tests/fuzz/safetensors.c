/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Any bytes as a safetensors file: refused with a message, or every tensor lies inside the file and is found by its
 * name. */
#include "file.h"
#include "files/safetensors.h"

volatile unsigned touched;

static void check(const struct st_file *file)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct st_tensor *t = &file->tensors[i];
        const unsigned char *first = t->data;
        uint64_t needed;
        must(t->begin <= t->end && first >= file->map.data &&
             first + (t->end - t->begin) <= file->map.data + file->map.size);
        must(t->ndim >= 0 && t->ndim <= TENSOR_MAX_DIMS);
        must(dtype_bits(t->dtype) > 0 && tensor_bytes(dtype_bits(t->dtype), t->ndim, t->shape, &needed) == 0);
        must(needed == t->end - t->begin);
        must(st_find(file, t->name) == t);
        must(i == 0 || strcmp(file->tensors[i - 1].name, t->name) < 0);
        touched = touch(t->data, needed);
        bytes += needed;
    }
    must(bytes <= file->map.size);
    for (size_t i = 0; i < file->metadata_count; i++)
        must(file->metadata[i].name && file->metadata[i].value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mapped map;
    struct st_file file;
    struct fail f = {.message = ""};
    file_fill(100, data, size);
    file_map(&map, 100);
    if (st_open_mapped(&file, &map, &f) == 0) {
        check(&file);
        st_close(&file);
    } else {
        must(f.message[0] != '\0' && file.count == 0 && !file.tensors && !file.map.data);
    }
    must(!map.data);
    return 0;
}
