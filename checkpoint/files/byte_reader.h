/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads little-endian numbers and bytes from what is mapped, one after another, and never beyond its end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "files/mapped.h"

struct byte_reader {
    const struct mapped *map;
    size_t at, held; /* bytes before `held` are safe to read in place */
    bool failed;     /* a read went beyond the end; reads give 0 and NULL since */
};

/* Holds the next bytes, and many after them. */
static inline bool hold_bytes(struct byte_reader *r, size_t end)
{
    const size_t first = r->held, left = r->map->size - first, least = end - first, step = (size_t)1 << 20;
    const size_t size = left < step || left < least ? left : least > step ? least : step;
    r->held = first + size;
    return mapped_hold(r->map, first, size, NULL) == 0;
}

static inline const unsigned char *take_bytes(struct byte_reader *r, uint64_t bytes)
{
    if (r->failed || bytes > r->map->size - r->at) {
        r->failed = true;
        return NULL;
    }
    if (r->at + (size_t)bytes > r->held && !hold_bytes(r, r->at + (size_t)bytes)) {
        r->failed = true;
        return NULL;
    }
    const unsigned char *at = r->map->data + r->at;
    r->at += (size_t)bytes;
    return at;
}

/* The number of up to 8 bytes. */
static inline uint64_t number_of_bytes(const unsigned char *at, unsigned bytes)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < bytes; i++)
        number |= (uint64_t)at[i] << 8 * i;
    return number;
}

static inline uint64_t take_number(struct byte_reader *r, unsigned bytes)
{
    const unsigned char *at = take_bytes(r, bytes);
    return at ? number_of_bytes(at, bytes) : 0;
}
