/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A tensor as a list of rows along its last dimension. */
#pragma once

#include <string.h>

#include "base/tensor.h"
#include "kernels/kernels.h"

struct row_list {
    const struct view *view;
    int64_t count, columns;
    bool even;
    int64_t stride; /* bytes from one row to the next, if all are as far apart */
    qobs_search_load_fn *load;
};

/* The tensor has a dimension, an element and an observable dtype. */
static inline struct row_list row_list_of(const struct view *v, const struct kernel_table *kernels)
{
    enum kernel_dtype dtype = QOBS_KERNEL_F32;
    qobs_kernel_dtype_of(v->dtype, &dtype);
    struct row_list list = {.view = v,
                            .columns = v->shape[v->ndim - 1],
                            .count = v->elements / v->shape[v->ndim - 1],
                            .even = true,
                            .load = kernels->search_load[dtype]};
    int64_t rows = 0; /* of the dimensions so far; 0: none */
    for (int d = v->ndim - 2; d >= 0; d--) {
        if (v->shape[d] == 1)
            continue;
        if (rows == 0)
            list.stride = v->strides[d];
        else
            list.even = list.even && v->strides[d] == list.stride * rows;
        rows = (rows == 0 ? 1 : rows) * v->shape[d];
    }
    return list;
}

static inline const unsigned char *row_at(const struct row_list *list, int64_t index)
{
    const struct view *v = list->view;
    if (list->even)
        return v->data + index * list->stride;
    int64_t offset = 0;
    for (int d = v->ndim - 2; d >= 0; d--) {
        offset += index % v->shape[d] * v->strides[d];
        index /= v->shape[d];
    }
    return v->data + offset;
}

enum { ROW_PIECE = 128 }; /* columns that are gathered at a time */

/* Columns first to first + n of a row as floats, with zeros up to a multiple of 16. finite_only: an element that is not
 * finite becomes 0. */
static inline void row_load(const struct row_list *list, const unsigned char *row, int64_t first, int64_t n,
                            bool finite_only, float *out)
{
    const struct view *v = list->view;
    const int64_t stride = v->strides[v->ndim - 1], element = (int64_t)qobs_dtype_size(v->dtype);
    unsigned char buffer[8 * ROW_PIECE];
    if (stride == element)
        list->load(row + first * stride, (size_t)n, 1, finite_only, out);
    for (int64_t i = 0; i < n && stride != element; i += ROW_PIECE) {
        const int64_t piece = n - i < ROW_PIECE ? n - i : ROW_PIECE;
        for (int64_t j = 0; j < piece; j++)
            memcpy(buffer + j * element, row + (first + i + j) * stride, (size_t)element);
        list->load(buffer, (size_t)piece, 1, finite_only, out + i);
    }
    for (int64_t j = n; j % 16 != 0; j++)
        out[j] = 0;
}
