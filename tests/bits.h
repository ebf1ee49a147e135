/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Elements of 2, 4 or 8 bytes at any address as integers, on machines of either byte order. */
#ifndef QOBS_TEST_BITS_H
#define QOBS_TEST_BITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t get_bits(const void *from, size_t size)
{
    uint16_t half;
    uint32_t word;
    uint64_t wide;
    if (size == sizeof half)
        return memcpy(&half, from, sizeof half), half;
    if (size == sizeof word)
        return memcpy(&word, from, sizeof word), word;
    return memcpy(&wide, from, sizeof wide), wide;
}

static inline void put_bits(void *to, uint64_t bits, size_t size)
{
    const uint16_t half = (uint16_t)bits;
    const uint32_t word = (uint32_t)bits;
    const void *const from = size == sizeof half   ? (const void *)&half
                             : size == sizeof word ? (const void *)&word
                                                   : &bits;
    memcpy(to, from, size);
}

#endif
