/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "grid/amax_order.h"

#include <string.h>

uint32_t qobs_amax_bits(const unsigned char *min, const unsigned char *max, size_t qparam)
{
    uint16_t low, high;
    memcpy(&low, min + qparam * sizeof low, sizeof low);
    memcpy(&high, max + qparam * sizeof high, sizeof high);
    const uint32_t a = low & 0x7fff, b = high & 0x7fff, amax = a > b ? a : b;
    return amax < AMAX_NONFINITE ? amax : AMAX_NONFINITE;
}

size_t qobs_amax_order(const unsigned char *min, const unsigned char *max, size_t n, size_t enough, uint32_t *order)
{
    uint32_t *const start = order + n;
    size_t shared = 0, sum = 0;
    memset(start, 0, (AMAX_NONFINITE + 1) * sizeof *start);
    for (size_t i = 0; i < n; i++)
        start[qobs_amax_bits(min, max, i)]++;
    for (size_t amax = 0; amax <= AMAX_NONFINITE; amax++) {
        const uint32_t count = start[amax];
        shared += count >= enough && amax < AMAX_NONFINITE ? count : 0;
        start[amax] = (uint32_t)sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        order[start[qobs_amax_bits(min, max, i)]++] = (uint32_t)i;
    return shared;
}

/* The numbers behind the order have become the ends of each amax. */
size_t qobs_amax_count(const uint32_t *order, size_t n, uint32_t amax)
{
    const uint32_t *const end = order + n;
    return end[amax] - (amax > 0 ? end[amax - 1] : 0);
}
