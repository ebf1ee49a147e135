/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A caller's tensor, checked once, and facts about dtypes. */
#pragma once

#include "qobs/qobs.h"

/* Dtypes of elements that can be observed. */

/* The element types that kernels read. The order is the index into the slots of a kernel table. */
enum kernel_dtype { QOBS_KERNEL_F32, QOBS_KERNEL_BF16, QOBS_KERNEL_F16, QOBS_KERNEL_F64, QOBS_KERNEL_DTYPES };

struct view {
    const unsigned char *data;
    qobs_dtype dtype;
    int ndim;
    int64_t shape[QOBS_MAX_NDIM];
    int64_t strides[QOBS_MAX_NDIM]; /* bytes */
    int64_t elements;
};

/* Fills `view` with every stride made explicit. `name` is the argument's name for messages. */
int qobs_view_of_tensor(struct view *view, const qobs_tensor *tensor, const char *name, qobs_error *error);

/* True if the dtype can be observed; *index is then its index in kernel tables. */
bool qobs_kernel_dtype_of(qobs_dtype dtype, enum kernel_dtype *index);

/* Fails if the argument of that name has another dtype than those of kernels. */
int qobs_require_kernel_dtype(qobs_dtype dtype, const char *name, qobs_error *error);

/* Copies n elements of 1, 2, 4 or 8 bytes that are that many bytes apart. */
void qobs_copy_elements(int64_t size, int64_t n, const unsigned char *from, int64_t from_stride, unsigned char *to,
                        int64_t to_stride);

/* *product = a * b; false if a or b is negative or the product overflows. */
static inline bool qobs_multiply(int64_t a, int64_t b, int64_t *product)
{
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, product);
}

/* Shapes of results and lists of axes. */

struct shape {
    int ndim; /* below 0: not set */
    int64_t extent[QOBS_MAX_NDIM];
};

struct axes {
    int count, axis[QOBS_MAX_NDIM];
};

static inline bool qobs_same_shape(const struct shape *a, const struct shape *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->extent[i] == b->extent[i];
    return same;
}
