/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads NumPy's .npy files, versions 1.0, 2.0 and 3.0. A file holds one array. */
#pragma once

#include <stdint.h>

#include "files/file_dtype.h"
#include "files/fail.h"
#include "files/mapped.h"

struct npy_file {
    struct mapped map;
    enum file_dtype dtype;
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    int64_t strides[TENSOR_MAX_DIMS]; /* bytes; in Fortran order the first is the smallest */
    const void *data;                 /* points into the map */
    uint64_t bytes;
};

/* Returns 1 if the file begins with the .npy signature. */
int npy_looks_like(const struct mapped *map);

/* Checks the complete header of a mapped file. *map moves into *file, or is closed on failure; it is zeroed in both
 * cases. Fails if the data is shorter or longer than the header states, or if
 * there are more than TENSOR_MAX_DIMS dimensions. Fails for types that file_dtype.h does not have, such as big-endian,
 * object and structured types. On failure *file is zeroed. */
int npy_open_mapped(struct npy_file *file, struct mapped *map, struct fail *f);

/* Unmaps the file and zeroes *file. Does nothing if *file is zeroed. */
void npy_close(struct npy_file *file);
