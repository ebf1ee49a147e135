/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A row counts as a token once an element other than 0 is found. That element is nearly always the first one, so one
 * cache line a row is read. Rows of zeros are read completely, as words with masked sign bits, in blocks that the
 * compiler vectorises. */
#include "measure/accumulators.h"

#include <string.h>

enum { BLOCK = 1024 }; /* bytes */

/* All bits but the signs: -0 is a zero, NaN is not. */
static uint64_t magnitude_mask(size_t element)
{
    return element == 2 ? UINT64_C(0x7fff7fff7fff7fff) : element == 4 ? UINT64_C(0x7fffffff7fffffff) : INT64_MAX;
}

static bool any_bit(const unsigned char *x, size_t bytes, uint64_t mask)
{
    uint64_t word, all = 0;
    size_t i = 0;
    for (; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, x + i, sizeof word);
        all |= word;
    }
    word = 0;
    memcpy(&word, x + i, bytes - i);
    return ((all | word) & mask) != 0;
}

static bool row_has_nonzero(const struct view *v, const unsigned char *x, int64_t length, int64_t stride)
{
    const size_t element = qobs_dtype_size(v->dtype);
    const uint64_t mask = magnitude_mask(element);
    if (stride != (int64_t)element && length > 1) {
        for (int64_t i = 0; i < length; i++)
            if (any_bit(x + i * stride, element, mask))
                return true;
        return false;
    }
    const size_t bytes = (size_t)length * element;
    if (any_bit(x, element < bytes ? element : bytes, mask))
        return true;
    for (size_t i = 0; i < bytes; i += BLOCK)
        if (any_bit(x + i, bytes - i < BLOCK ? bytes - i : BLOCK, mask))
            return true;
    return false;
}

uint64_t qobs_tokens(const struct view *v) { return v->ndim == 2 ? (uint64_t)v->shape[0] : 0; }

uint64_t qobs_nonzero_tokens(const struct view *v)
{
    const int last = v->ndim - 1;
    const int64_t length = last < 0 ? 1 : v->shape[last], stride = last < 0 ? 0 : v->strides[last];
    int64_t index[QOBS_MAX_NDIM] = {0}, offset = 0;
    uint64_t tokens = 0;
    if (v->elements == 0)
        return 0;
    do
        tokens += row_has_nonzero(v, v->data + offset, length, stride);
    while (qobs_view_next(v, last, index, &offset));
    return tokens;
}
