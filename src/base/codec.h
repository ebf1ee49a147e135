/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Numbers and arrays as bytes, in both directions with the same calls: a codec writes, counts bytes, or reads. Bytes
 * are the same on every machine: little-endian, integers in as many bytes as the call says, elements in their own size.
 * Reading past the end gives 0 and sets `ends_early`. */
#pragma once

#include "base/tensor.h"

struct codec {
    bool loading;
    uint32_t format;                 /* of the state that is read or written */
    unsigned char *to;               /* saving: NULL only counts */
    const unsigned char *from, *end; /* loading */
    size_t size;                     /* bytes written or counted */
    bool ends_early;
};

/* FNV-1a. */
uint64_t qobs_hash(const unsigned char *bytes, size_t n);

/* True if n elements of that size are left to read, and when saving. */
bool qobs_codec_holds(const struct codec *codec, uint64_t n, size_t size);

/* An integer in `bytes` bytes: *value is written, or read. */
void qobs_code(struct codec *codec, uint64_t *value, size_t bytes);

/* The same for an int32_t-sized value that is not negative; returns it. */
uint32_t qobs_code_u32(struct codec *codec, uint32_t value);
uint64_t qobs_code_u64(struct codec *codec, uint64_t value);

/* The same for a member of an observer, which changes by loading alone: several threads may save one observer. */
#define QOBS_CODE_MEMBER(codec, type, member)                                                                          \
    do {                                                                                                               \
        const uint32_t coded = qobs_code_u32(codec, (uint32_t)(member));                                               \
        if ((codec)->loading)                                                                                          \
            (member) = (type)coded;                                                                                    \
    } while (0)

/* n elements; leaves *elements alone if there are not that many to read. */
void qobs_code_elements(struct codec *codec, void *elements, size_t n, size_t size);

/* u32 ndim and u64 extents. Returns the number of elements, or 0 if the shape is impossible. */
size_t qobs_code_shape(struct codec *codec, struct shape *shape);
