/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Element types and shapes as files state them. Types go by their safetensors names. */
#ifndef QOBS_TOOLS_DTYPE_H
#define QOBS_TOOLS_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#define TENSOR_MAX_DIMS 8
#define DTYPE_NAME 12 /* room for a name and its '\0' */

/* Every name dtype_size knows, for messages: "F32, BF16, ...". */
extern const char dtype_names[];

/* Bytes of one element, or 0 for a name that is not known. */
size_t dtype_size(const char *dtype);

/* Bytes of a whole tensor: 0 where a dimension is 0, one element for no dimensions. Returns -1 where a dimension is negative
 * or the dimensions that are not 0 multiply to more than INT64_MAX bytes, so that strides are safe to compute, too. */
int tensor_bytes(size_t element, int ndim, const int64_t *shape, uint64_t *bytes);

/* Strides in bytes of a tensor without gaps whose tensor_bytes is known to fit; the last dimension is the fastest, or the
 * first if `fortran`. */
void tensor_strides(size_t element, int ndim, const int64_t *shape, int fortran, int64_t *strides);

/* A shape for messages, "[2,3]"; written to `words` and returned. */
struct shape_words {
    char text[TENSOR_MAX_DIMS * 21 + 3]; /* numbers of any size */
};
const char *shape_describe(int ndim, const int64_t *shape, struct shape_words *words);

#endif
