/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/bytes.h"

#include <string.h>

#include "base/tensor.h"

void qobs_copy_elements(unsigned char *to, const unsigned char *from, size_t n, size_t size)
{
    const uint16_t probe = 1;
    const bool little = *(const unsigned char *)&probe == 1;
    for (size_t i = 0; !little && i < n * size; i++)
        to[i] = from[i / size * size + (size - 1 - i % size)];
    if (little && n > 0)
        memcpy(to, from, n * size);
}

uint64_t qobs_hash(const unsigned char *p, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

void qobs_put(struct sink *sink, uint64_t value, size_t bytes)
{
    for (size_t i = 0; sink->to && i < bytes; i++)
        sink->to[sink->size + i] = (unsigned char)(value >> 8 * i);
    sink->size += bytes;
}

void qobs_put_elements(struct sink *sink, const void *from, size_t n, size_t size)
{
    if (sink->to)
        qobs_copy_elements(sink->to + sink->size, from, n, size);
    sink->size += n * size;
}

void qobs_put_shape(struct sink *sink, const struct shape *shape)
{
    qobs_put(sink, (uint64_t)shape->ndim, 4);
    for (int d = 0; d < shape->ndim; d++)
        qobs_put(sink, (uint64_t)shape->extent[d], 8);
}

const unsigned char *qobs_get_bytes(struct source *source, size_t n)
{
    const unsigned char *at = source->at;
    source->short_of |= (size_t)(source->end - at) < n;
    if (source->short_of)
        return NULL;
    source->at += n;
    return at;
}

uint64_t qobs_get(struct source *source, size_t bytes)
{
    const unsigned char *p = qobs_get_bytes(source, bytes);
    uint64_t value = 0;
    for (size_t i = 0; p && i < bytes; i++)
        value |= (uint64_t)p[i] << 8 * i;
    return value;
}

size_t qobs_get_shape(struct source *source, struct shape *shape)
{
    const uint64_t ndim = qobs_get(source, 4);
    int64_t elements = 1;
    if (source->short_of || ndim > QOBS_MAX_NDIM)
        return 0;
    shape->ndim = (int)ndim;
    for (int d = 0; d < shape->ndim; d++) {
        shape->extent[d] = (int64_t)qobs_get(source, 8);
        if (source->short_of || !qobs_multiply(elements, shape->extent[d], &elements))
            return 0;
    }
    return (size_t)elements;
}

bool qobs_get_elements(struct source *source, void *to, size_t n, size_t size)
{
    const unsigned char *from = qobs_get_bytes(source, n * size);
    if (from)
        qobs_copy_elements(to, from, n, size);
    return from != NULL;
}
