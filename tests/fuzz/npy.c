/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Any bytes as a .npy file: refused with a message, or every element, found by the strides, lies inside the file. */
#include "file.h"
#include "files/npy.h"

volatile unsigned touched;

static void check(const struct npy_file *file)
{
    const unsigned char *lowest = file->data, *highest = lowest;
    uint64_t needed;
    must(file->ndim >= 0 && file->ndim <= TENSOR_MAX_DIMS);
    must(dtype_size(file->dtype) > 0 && tensor_bytes(dtype_bits(file->dtype), file->ndim, file->shape, &needed) == 0);
    must(needed == file->bytes && lowest >= file->map.data && lowest + needed == file->map.data + file->map.size);
    if (needed == 0)
        return;
    for (int d = 0; d < file->ndim; d++) {
        must(file->shape[d] >= 0 && file->strides[d] > 0);
        highest += (file->shape[d] - 1) * file->strides[d];
    }
    must(highest + dtype_size(file->dtype) == lowest + needed);
    touched = touch(lowest, needed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mapped map;
    struct npy_file file;
    struct fail f = {.message = ""};
    file_fill(100, data, size);
    file_map(&map, 100);
    if (npy_open_mapped(&file, &map, &f) == 0) {
        check(&file);
        npy_close(&file);
    } else {
        must(f.message[0] != '\0' && !file.map.data);
    }
    must(!map.data);
    return 0;
}
