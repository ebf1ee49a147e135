/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Element types and shapes as files state them. An element type is its safetensors name. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define TENSOR_MAX_DIMS 8
#define DTYPE_NAME 12 /* bytes of a name, its '\0' included */

/* All names that dtype_bits knows, for messages: "U64, I64, ...". */
extern const char dtype_names[];

/* Bits of one element; 0 if the name is unknown. */
size_t dtype_bits(const char *dtype);

/* Bytes of one element; 0 if the name is unknown, or if elements share bytes: F4, F6_E2M3, F6_E3M2. Such tensors can
 * be copied only. */
size_t dtype_size(const char *dtype);

/* Place of the dtype in the order in which safetensors writes tensors. */
int dtype_rank(const char *dtype);

/* Stores the bytes of a tensor: 0 if a dimension is 0, one element if there are no dimensions. Returns -1 if a
 * dimension is negative, if the product of the non-zero dimensions exceeds INT64_MAX bytes, and if elements do not fill
 * the last byte. So strides cannot overflow either. */
int tensor_bytes(size_t bits, int ndim, const int64_t *shape, uint64_t *bytes);

/* Computes the strides, in bytes, of a tensor without gaps. The last dimension varies fastest; with `fortran` the
 * first does. tensor_bytes must have succeeded for the shape. */
void tensor_strides(size_t element, int ndim, const int64_t *shape, int fortran, int64_t *strides);

/* Writes a shape such as "[2,3]" to `words`, for messages, and returns the text. */
struct shape_words {
    char text[TENSOR_MAX_DIMS * 21 + 3]; /* 8 numbers of at most 20 characters with separators, brackets and '\0' */
};
const char *shape_describe(int ndim, const int64_t *shape, struct shape_words *words);
