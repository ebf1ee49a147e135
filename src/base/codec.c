/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "base/codec.h"

#include <string.h>

uint64_t qobs_hash(const unsigned char *bytes, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* Bytes that are left to read. */
static size_t bytes_left(const struct codec *codec) { return (size_t)(codec->end - codec->from); }

bool qobs_codec_holds(const struct codec *codec, uint64_t n, size_t size)
{
    return !codec->loading || n <= bytes_left(codec) / size;
}

/* Elements in the machine's order to little-endian, or back. */
static void copy_elements(unsigned char *to, const unsigned char *from, size_t n, size_t size)
{
    const uint16_t probe = 1;
    const bool little = *(const unsigned char *)&probe == 1;
    for (size_t i = 0; !little && i < n * size; i++)
        to[i] = from[i / size * size + (size - 1 - i % size)];
    if (little && n > 0)
        memcpy(to, from, n * size);
}

static const unsigned char *next(struct codec *codec, size_t n)
{
    const unsigned char *at = codec->from;
    codec->ends_early |= bytes_left(codec) < n;
    if (codec->ends_early)
        return NULL;
    codec->from += n;
    return at;
}

void qobs_code(struct codec *codec, uint64_t *value, size_t bytes)
{
    if (codec->loading) {
        const unsigned char *p = next(codec, bytes);
        *value = 0;
        for (size_t i = 0; p && i < bytes; i++)
            *value |= (uint64_t)p[i] << 8 * i;
        return;
    }
    for (size_t i = 0; codec->to && i < bytes; i++)
        codec->to[codec->size + i] = (unsigned char)(*value >> 8 * i);
    codec->size += bytes;
}

uint32_t qobs_code_u32(struct codec *codec, uint32_t value)
{
    uint64_t wide = value;
    qobs_code(codec, &wide, 4);
    return (uint32_t)wide;
}

uint64_t qobs_code_u64(struct codec *codec, uint64_t value)
{
    qobs_code(codec, &value, 8);
    return value;
}

void qobs_code_elements(struct codec *codec, void *elements, size_t n, size_t size)
{
    if (codec->loading) {
        const unsigned char *from = next(codec, n * size);
        if (from)
            copy_elements(elements, from, n, size);
        return;
    }
    if (codec->to)
        copy_elements(codec->to + codec->size, elements, n, size);
    codec->size += n * size;
}

size_t qobs_code_shape(struct codec *codec, struct shape *shape)
{
    const uint32_t ndim = qobs_code_u32(codec, (uint32_t)shape->ndim);
    int64_t elements = 1;
    if (codec->ends_early || ndim > QOBS_MAX_NDIM)
        return 0;
    if (codec->loading)
        shape->ndim = (int)ndim;
    for (int d = 0; d < shape->ndim; d++) {
        qobs_code(codec, (uint64_t *)&shape->extent[d], 8);
        if (codec->ends_early || !qobs_multiply(elements, shape->extent[d], &elements))
            return 0;
    }
    return (size_t)elements;
}
