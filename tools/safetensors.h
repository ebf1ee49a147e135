/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Safetensors files: 8 bytes of header length, a JSON header, the data of the tensors without gaps. */
#ifndef QOBS_TOOLS_SAFETENSORS_H
#define QOBS_TOOLS_SAFETENSORS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "dtype.h"
#include "fail.h"
#include "mapped.h"
#include "output.h"

struct st_tensor {
    char *name;
    char dtype[DTYPE_NAME];
    int ndim; /* 0 for a scalar */
    int64_t shape[TENSOR_MAX_DIMS];
    uint64_t begin, end; /* offsets into the data section */
    const void *data;    /* in the map, at any alignment; NULL in a writer */
};

/* One entry of __metadata__. */
struct st_pair {
    char *name;
    char *value;
};

struct st_file {
    struct mapped map;
    struct st_tensor *tensors; /* by name, as strcmp orders */
    size_t count;
    struct st_pair *metadata; /* in the order of the file */
    size_t metadata_count;
};

/* Opens a file and checks all of its header; what it then describes lies inside the map. Everything in *file belongs to it
 * until st_close. Fails for every departure from the format, for dtypes dtype_size does not know and for more than
 * TENSOR_MAX_DIMS dimensions; *file is then zeroed. */
int st_open(struct st_file *file, const char *path, struct fail *f);

/* The same for a file that is mapped already. *map is moved into *file, on failure it is closed; zeroed in any case. */
int st_open_mapped(struct st_file *file, struct mapped *map, struct fail *f);

/* The tensor of that name, or NULL. */
const struct st_tensor *st_find(const struct st_file *file, const char *name);

/* Unmaps, frees and zeroes. Harmless on a zeroed *file. */
void st_close(struct st_file *file);

/* Writes a file whose tensors are declared before their data is known: add and metadata any number of times, begin once, put
 * from any number of threads, finish. Until finish succeeds, nothing at `path` changes; the data goes to a file beside it.
 *
 *     struct st_writer w = {0};
 *     if (st_writer_add(&w, ...) || st_writer_begin(&w, path, &f) || st_writer_put(&w, 0, 0, data, bytes, &f) ||
 *         st_writer_finish(&w, &f))
 *         ...f.message...
 *     st_writer_abort(&w);
 */
struct st_writer {
    struct st_tensor *tensors; /* in the order of the calls; an index is a place in here */
    size_t count, room;
    struct st_pair *metadata;
    size_t metadata_count;
    struct output output; /* closed before begin */
    uint64_t data_start;  /* offset of the data section */
    uint64_t total;       /* bytes of data */
    _Atomic uint64_t written;
    atomic_bool failed;
};

/* Declares the next tensor; everything is copied. Fails for what st_open would not read back, except that a second tensor
 * of the same name is found by begin. */
int st_writer_add(struct st_writer *w, const char *name, const char *dtype, int ndim, const int64_t *shape, struct fail *f);

/* Declares an entry of __metadata__; both strings are copied. */
int st_writer_metadata(struct st_writer *w, const char *name, const char *value, struct fail *f);

/* Lays the data out in the order of the tensors (nothing is aligned but the start of the data, to 8 bytes), makes the file
 * beside `path`, writes the header and sets the size. If `path` is a symbolic link, what it points to will be replaced.
 * Fails if `path` exists and is not a regular file. After a failure nothing is left beside `path` and the writer is
 * released. */
int st_writer_begin(struct st_writer *w, const char *path, struct fail *f);

/* Writes part of a tensor. Threads may call it at the same time, each with its own f. After a failure finish will fail. */
int st_writer_put(struct st_writer *w, size_t index, uint64_t offset, const void *data, size_t bytes, struct fail *f);

/* Renames the file onto `path`, with mode 0666 less the umask, and releases the writer. Fails if a put failed, if fewer
 * bytes were put than the tensors have, or if the system says so; then the file beside `path` is gone and `path` as it was.
 * The data is not forced to the disk. */
int st_writer_finish(struct st_writer *w, struct fail *f);

/* Removes the file beside `path` and releases the writer. Harmless on a zeroed, finished or aborted one. */
void st_writer_abort(struct st_writer *w);

#endif
