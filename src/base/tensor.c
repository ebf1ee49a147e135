/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "base/tensor.h"

#include "base/struct_size.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [QOBS_F32] = {"F32", 4}, [QOBS_BF16] = {"BF16", 2}, [QOBS_F16] = {"F16", 2},
    [QOBS_F64] = {"F64", 8}, [QOBS_I8] = {"I8", 1},     [QOBS_I16] = {"I16", 2},
    [QOBS_I32] = {"I32", 4}, [QOBS_I64] = {"I64", 8},   [QOBS_F8_E4M3] = {"F8_E4M3", 1},
    [QOBS_U8] = {"U8", 1},
};

/* With this limit, bytes of arrays with several entries for each element or qparam fit 64 bits. A larger tensor could
 * not be addressed, except by strides of 0. */
#define MAX_ELEMENTS (INT64_C(1) << 48)

static bool known(qobs_dtype dtype) { return dtype >= QOBS_F32 && dtype <= QOBS_U8; }

size_t qobs_dtype_size(qobs_dtype dtype) { return known(dtype) ? dtypes[dtype].size : 0; }

const char *qobs_dtype_name(qobs_dtype dtype) { return known(dtype) ? dtypes[dtype].name : NULL; }

bool qobs_kernel_dtype_of(qobs_dtype dtype, enum kernel_dtype *index)
{
    _Static_assert(QOBS_F64 - QOBS_F32 == QOBS_KERNEL_F64, "the dtypes of kernels are the first ones");
    if (dtype < QOBS_F32 || dtype > QOBS_F64)
        return false;
    *index = (enum kernel_dtype)(dtype - QOBS_F32);
    return true;
}

int qobs_require_kernel_dtype(qobs_dtype dtype, const char *name, qobs_error *error)
{
    enum kernel_dtype unused;
    if (qobs_kernel_dtype_of(dtype, &unused))
        return QOBS_OK;
    return qobs_invalid(error, "%s: dtype is %s, allowed are F32, BF16, F16 and F64", name, qobs_dtype_name(dtype));
}

/* A copy of a constant size is one instruction. */
static inline void copy(size_t size, int64_t n, const unsigned char *from, int64_t from_stride, unsigned char *to,
                        int64_t to_stride)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * to_stride, from + i * from_stride, size);
}

void qobs_copy_elements(int64_t size, int64_t n, const unsigned char *from, int64_t from_stride, unsigned char *to,
                        int64_t to_stride)
{
    switch (size) {
    case 1:
        copy(1, n, from, from_stride, to, to_stride);
        break;
    case 2:
        copy(2, n, from, from_stride, to, to_stride);
        break;
    case 4:
        copy(4, n, from, from_stride, to, to_stride);
        break;
    default:
        copy(8, n, from, from_stride, to, to_stride);
        break;
    }
}

/* True if every element is within 2^61 bytes of the first. No product or sum of strides overflows then. */
static bool is_addressable(const struct view *view)
{
    const int64_t limit = INT64_C(1) << 61;
    int64_t left = limit;
    for (int i = 0; i < view->ndim; i++) {
        const int64_t stride = view->strides[i], steps = view->shape[i] - 1;
        if (steps == 0)
            continue;
        const int64_t forward = stride < -limit ? limit + 1 : stride < 0 ? -stride : stride;
        if (forward > left / steps)
            return false;
        left -= steps * forward;
    }
    return true;
}

int qobs_view_of_tensor(struct view *view, const qobs_tensor *tensor, const char *name, qobs_error *error)
{
    if (!tensor)
        return qobs_invalid(error, "%s: is NULL, expected a tensor", name);
    RETURN_IF_FAILED(struct_size_check(name, tensor, SIZE_THROUGH(qobs_tensor, strides), sizeof *tensor, error));
    if (!known(tensor->dtype))
        return qobs_invalid(error, "%s: dtype %d is unknown", name, (int)tensor->dtype);
    if (tensor->ndim < 0 || tensor->ndim > QOBS_MAX_NDIM)
        return qobs_invalid(error, "%s: ndim is %d, allowed are 0 to %d", name, tensor->ndim, QOBS_MAX_NDIM);
    if (tensor->ndim > 0 && !tensor->shape)
        return qobs_invalid(error, "%s: shape is NULL", name);
    view->data = tensor->data; /* field by field: clearing unused sizes and strides would cost more than the rest */
    view->dtype = tensor->dtype;
    view->ndim = tensor->ndim;
    /* A size of 0 makes the tensor empty, even if the product of the others overflows. */
    bool empty = false;
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0)
            return qobs_invalid(error, "%s: shape[%d] is %lld, must not be negative", name, i,
                                (long long)tensor->shape[i]);
        empty |= tensor->shape[i] == 0;
        view->shape[i] = tensor->shape[i];
        view->strides[i] = 0;
    }
    const int64_t size = (int64_t)dtypes[tensor->dtype].size;
    int64_t elements = 1;
    for (int i = tensor->ndim - 1; i >= 0 && !empty; i--) {
        /* the stride of a dimension of size 1 has no meaning */
        view->strides[i] = tensor->strides && view->shape[i] > 1 ? tensor->strides[i] : elements * size;
        if (!qobs_multiply(elements, view->shape[i], &elements) || elements > MAX_ELEMENTS)
            return qobs_invalid(error, "%s: its shape holds more than 2^48 elements", name);
    }
    view->elements = empty ? 0 : elements;
    if (!empty && !is_addressable(view))
        return qobs_invalid(error, "%s: its strides reach further than 2^61 bytes", name);
    if (!tensor->data && view->elements > 0)
        return qobs_invalid(error, "%s: data is NULL, but there are %lld elements", name, (long long)view->elements);
    return QOBS_OK;
}
