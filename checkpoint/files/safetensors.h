/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads and writes safetensors files: the header length in 8 bytes, a JSON header, and the data of the tensors
 * without gaps. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "files/file_dtype.h"
#include "files/fail.h"
#include "files/mapped.h"
#include "files/output.h"

struct st_tensor {
    char *name;
    enum file_dtype dtype;
    int ndim; /* 0 for a scalar */
    int64_t shape[TENSOR_MAX_DIMS];
    uint64_t begin, end; /* byte offsets in the data section */
    const void *data;    /* points into the map, at any alignment; NULL in a writer */
};

/* One entry of __metadata__. */
struct st_pair {
    char *name;
    char *value;
};

struct st_file {
    struct mapped map;
    struct st_tensor *tensors; /* sorted by name with strcmp */
    size_t count;
    struct st_pair *metadata; /* in the order of the file */
    size_t metadata_count;
};

/* Opens a file and checks its complete header. All tensors it then describes lie inside the map. Everything in *file
 * belongs to *file until st_close. Fails for every violation of the format, for dtypes that file_dtype.h does not have
 * and for more than TENSOR_MAX_DIMS dimensions. On failure *file is zeroed. */
int st_open(struct st_file *file, const char *path, struct fail *f);

/* The same for a mapped file. *map moves into *file, or is closed on failure; it is zeroed in both cases. */
int st_open_mapped(struct st_file *file, struct mapped *map, struct fail *f);

/* Returns the tensor with that name, or NULL. */
const struct st_tensor *st_find(const struct st_file *file, const char *name);

/* Makes the data of a tensor safe to read in place until it is released (mapped_borrow). Nothing happens for NULL. */
int st_borrow(const struct st_tensor *tensor, struct fail *f);
void st_release(const struct st_tensor *tensor);

/* Unmaps the file, frees everything and zeroes *file. Does nothing if *file is zeroed. */
void st_close(struct st_file *file);

/* Makes what is before the data of a file: the length of the header, JSON without spaces as safetensors' serialize has
 * it, padding to 8 bytes. Tensors are listed in this order. The caller frees *header, also after a failure. */
int st_make_header(const struct st_tensor *tensors, size_t count, const struct st_pair *metadata, size_t metadata_count,
                   const char *path, char **header, size_t *size, struct fail *f);

/* Writes a file whose tensors are declared before their data is known. Order of the calls: add and metadata any
 * number of times, begin once, put from any number of threads, finish. The file at `path` changes only when finish
 * succeeds. Until then the data is in a temporary file in the same directory.
 *
 *     struct st_writer w = {0};
 *     if (st_writer_add(&w, ...) || st_writer_begin(&w, path, &f) || st_writer_put(&w, 0, 0, data, bytes, &f) ||
 *         st_writer_finish(&w, &f))
 *         ...f.message...
 *     st_writer_abort(&w);
 */
struct st_writer {
    struct st_tensor *tensors; /* in the order of the add calls, which is also their index */
    size_t count;
    struct st_pair *metadata;
    size_t metadata_count;
    struct output output; /* zeroed before begin */
    uint64_t data_start;  /* byte offset of the data section in the file */
    uint64_t total;       /* bytes of data */
    _Atomic uint64_t written;
    atomic_bool failed;
};

/* Declares the next tensor and copies the arguments. Fails if st_open would reject the tensor. A repeated name is
 * reported by begin. */
int st_writer_add(struct st_writer *w, const char *name, enum file_dtype dtype, int ndim, const int64_t *shape,
                  struct fail *f);

/* Declares an entry of __metadata__ and copies both strings. */
int st_writer_metadata(struct st_writer *w, const char *name, const char *value, struct fail *f);

/* Lays out the data in the order of the tensors, creates the temporary file, writes the header and sets the file
 * size. Only the start of the data section is aligned, to 8 bytes. If `path` is a symbolic link, finish replaces the
 * file it points to. Fails if `path` exists and is not a regular file. On failure the temporary file is removed and
 * the writer is released. */
int st_writer_begin(struct st_writer *w, const char *path, struct fail *f);

/* Writes a part of tensor `index`, at byte `offset` of its data. Several threads may call it at the same time, each
 * with its own f. After a failure, finish fails, too. */
int st_writer_put(struct st_writer *w, size_t index, uint64_t offset, const void *data, size_t bytes, struct fail *f);

/* Renames the temporary file to `path` and releases the writer. The mode is 0666 less the umask. Fails if a put
 * failed, if fewer bytes were put than the tensors have, or on a system error. On failure the temporary file is
 * removed and `path` is unchanged. The data is not flushed to the disk. */
int st_writer_finish(struct st_writer *w, struct fail *f);

/* Removes the temporary file and releases the writer. Does nothing if the writer is zeroed, finished or aborted. */
void st_writer_abort(struct st_writer *w);
