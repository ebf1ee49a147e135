/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The tensors of a file, whatever its kind: safetensors, a sharded checkpoint, a model's directory, .npy. */
#ifndef QOBS_TOOLS_TENSORS_H
#define QOBS_TOOLS_TENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "dtype.h"
#include "fail.h"

/* A tensor in a map. Everything belongs to the tensor_set it came from and lasts as long. */
struct tensor_ref {
    const char *name;
    const char *file; /* path of the file the data is in: a shard, not its index */
    char dtype[DTYPE_NAME];
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    int64_t strides[TENSOR_MAX_DIMS]; /* bytes, never negative; only .npy in Fortran order has other than C order */
    const void *data;                 /* at any alignment; points to nothing if bytes is 0 */
    uint64_t bytes;                   /* of the data, which has no gaps */
};

struct tensor_file; /* one map and what was read from it */

struct tensor_set {
    char *path; /* what was opened: for a directory the index or file in it */
    struct tensor_file *files;
    size_t file_count;
    struct tensor_ref *refs; /* by file, shards by name; then by position in the file */
    size_t count;
    const struct tensor_ref **by_name;
};

/* Opens `path`:
 *  - a safetensors file;
 *  - the index of a sharded checkpoint (*.index.json), of which every shard is opened, each once;
 *  - a directory holding model.safetensors.index.json or else model.safetensors;
 *  - a .npy file, whose one tensor is named after the file, less ".npy".
 * What a file begins with tells its kind for .npy; else its extension does if known; else again what it begins with.
 * On failure *set is zeroed. */
int tensors_open(struct tensor_set *set, const char *path, struct fail *f);

size_t tensors_count(const struct tensor_set *set);

/* The i-th tensor, in the order in which reading is sequential. i < tensors_count. */
const struct tensor_ref *tensors_at(const struct tensor_set *set, size_t i);

/* The tensor of that name, or NULL. */
const struct tensor_ref *tensors_find(const struct tensor_set *set, const char *name);

/* Unmaps, frees and zeroes. Harmless on a zeroed *set. */
void tensors_close(struct tensor_set *set);

/* The file tensors_open opens for `path`: itself, or for a directory the index or model in it. To be freed; NULL after a
 * failure. */
char *tensors_resolve(const char *path, struct fail *f);

#endif
