/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Element types and shapes as files state them. Names of element types are read and written here alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qobs/qobs.h"

#define TENSOR_MAX_DIMS 8

/* The element types of safetensors 0.8 in the order in which it writes tensors: name, bits, dtype of the library; 0:
 * it has none. */
#define FILE_DTYPE_ROWS(X)                                                                                             \
    X(U64, 64, 0)                                                                                                      \
    X(I64, 64, QOBS_I64)                                                                                               \
    X(F64, 64, QOBS_F64)                                                                                               \
    X(C64, 64, 0)                                                                                                      \
    X(F32, 32, QOBS_F32)                                                                                               \
    X(U32, 32, 0)                                                                                                      \
    X(I32, 32, QOBS_I32)                                                                                               \
    X(BF16, 16, QOBS_BF16)                                                                                             \
    X(F16, 16, QOBS_F16)                                                                                               \
    X(U16, 16, 0)                                                                                                      \
    X(I16, 16, QOBS_I16)                                                                                               \
    X(F8_E5M2FNUZ, 8, 0)                                                                                               \
    X(F8_E4M3FNUZ, 8, 0)                                                                                               \
    X(F8_E8M0, 8, 0)                                                                                                   \
    X(F8_E4M3, 8, QOBS_F8_E4M3)                                                                                        \
    X(F8_E5M2, 8, 0)                                                                                                   \
    X(I8, 8, QOBS_I8)                                                                                                  \
    X(U8, 8, QOBS_U8)                                                                                                  \
    X(F6_E3M2, 6, 0)                                                                                                   \
    X(F6_E2M3, 6, 0)                                                                                                   \
    X(F4, 4, 0)                                                                                                        \
    X(BOOL, 8, 0)

#define FILE_DTYPE_NAME(name, bits, dtype) FILE_##name,
enum file_dtype { FILE_NONE, FILE_DTYPE_ROWS(FILE_DTYPE_NAME) FILE_DTYPES };

/* A set of element types. */
typedef uint32_t file_dtypes;
#define IN_FILE(name) ((file_dtypes)1 << FILE_##name)
#define HALVES_AND_FLOATS                                                                                              \
    (IN_FILE(F32) | IN_FILE(BF16) | IN_FILE(F16)) /* of weights that are quantized, and of scales */
#define ALL_FILE_DTYPES (((file_dtypes)1 << FILE_DTYPES) - 2)

/* Returns the element type with a name of safetensors; FILE_NONE if it is unknown. */
enum file_dtype dtype_find(const char *name, size_t length);

/* Returns its name; "none" for FILE_NONE. */
const char *dtype_name(enum file_dtype dtype);

/* Returns the element type of a dtype of the library, and the other way round; 0: it has none. */
enum file_dtype dtype_in_file(qobs_dtype dtype);
qobs_dtype dtype_in_library(enum file_dtype dtype);

/* Returns true if a set has the element type. */
bool dtype_is_in(enum file_dtype dtype, file_dtypes set);

/* Writes the names of a set, "F32, BF16, F16", to `words`, for messages, and returns the text. */
struct dtype_words {
    char text[FILE_DTYPES * 14];
};
const char *dtypes_describe(file_dtypes set, struct dtype_words *words);

/* The same with words that last until the block ends. */
#define DTYPE_WORDS(set) dtypes_describe(set, &(struct dtype_words){{0}})

/* Bits of one element; 0 for FILE_NONE. */
size_t dtype_bits(enum file_dtype dtype);

/* Bytes of one element; 0 for FILE_NONE, or if elements share bytes: F4, F6_E2M3, F6_E3M2. Such tensors can be copied
 * only. */
size_t dtype_size(enum file_dtype dtype);

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
#define SHAPE_WORDS(ndim, shape) shape_describe(ndim, shape, &(struct shape_words){{0}})
