/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads the tensors of a path of any supported kind: safetensors, sharded checkpoint, model directory, .npy. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "files/file_dtype.h"
#include "files/fail.h"

/* A tensor in a mapped file. Everything belongs to its tensor_set and lives as long as that. */
struct tensor_ref {
    const char *name;
    const char *file; /* path of the file with the data: of a shard, not of its index */
    enum file_dtype dtype;
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    int64_t strides[TENSOR_MAX_DIMS]; /* bytes, never negative; C order, except for .npy in Fortran order */
    const void *data;                 /* at any alignment; must not be read if bytes is 0 */
    uint64_t bytes;                   /* size of the data, which has no gaps */
};

struct tensor_file; /* a map and its parsed contents */

struct tensor_set {
    char *path; /* path of the opened file; for a directory, of the index or model in it */
    struct tensor_file *files;
    size_t file_count;
    struct tensor_ref *refs; /* sorted by file (shards by name), then by position in the file */
    size_t count;
    const struct tensor_ref **by_name;
};

/* Opens `path`:
 *  - a safetensors file;
 *  - the index of a sharded checkpoint (*.index.json): every shard is opened once;
 *  - a directory with model.safetensors.index.json or else model.safetensors;
 *  - a .npy file: its one tensor has the name of the file without ".npy".
 * The signature decides for .npy. Otherwise a known file extension decides, and without one the first bytes.
 * On failure *set is zeroed. */
int tensors_open(struct tensor_set *set, const char *path, struct fail *f);

/* Returns the tensor with that name, or NULL. */
const struct tensor_ref *tensors_find(const struct tensor_set *set, const char *name);

/* Unmaps the files, frees everything and zeroes *set. Does nothing if *set is zeroed. */
void tensors_close(struct tensor_set *set);

/* Returns the path that tensors_open opens for `path`: `path` itself, or the index or model in a directory. The
 * caller frees it. NULL: failure. */
char *tensors_resolve(const char *path, struct fail *f);
