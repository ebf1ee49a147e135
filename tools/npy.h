/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NumPy's .npy files, versions 1.0, 2.0 and 3.0: one array each. */
#ifndef QOBS_TOOLS_NPY_H
#define QOBS_TOOLS_NPY_H

#include <stdint.h>

#include "dtype.h"
#include "fail.h"
#include "mapped.h"

struct npy_file {
    struct mapped map;
    char dtype[DTYPE_NAME]; /* by its safetensors name */
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    int64_t strides[TENSOR_MAX_DIMS]; /* bytes; the first is the smallest for a file in Fortran order */
    const void *data;                 /* in the map */
    uint64_t bytes;
};

/* Does it begin like a .npy file? */
int npy_looks_like(const struct mapped *map);

/* Opens a file and checks all of its header. Fails for data that is shorter or longer than the header says, for big-endian,
 * object, structured and other types without a name in dtype.h, and for more than TENSOR_MAX_DIMS dimensions; *file is then
 * zeroed. */
int npy_open(struct npy_file *file, const char *path, struct fail *f);

/* The same for a file that is mapped already. *map is moved into *file, on failure it is closed; zeroed in any case. */
int npy_open_mapped(struct npy_file *file, struct mapped *map, struct fail *f);

/* Unmaps and zeroes. Harmless on a zeroed *file. */
void npy_close(struct npy_file *file);

#endif
