/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* pack_events of optimal_curve.inl.h for instruction sets that cannot compress vectors. There is no branch, because
 * events are not predictable. */
#pragma once

#include "number/number.h"
#include "templates/inline.h"

ALWAYS_INLINE size_t pack_events(uint32_t *events, const float t[16], uint32_t first, uint32_t count, uint32_t tag,
                                 int32_t passed[16])
{
    size_t n = 0;
    for (uint32_t l = 0; l < 16; l++) {
        const int32_t k = (int32_t)(bits_of_float(t[l]) >> 16) - (int32_t)first;
        events[n] = (uint32_t)k << 20 | (tag + l);
        n += (uint32_t)k < count;
        passed[l] += k >= (int32_t)count;
    }
    return n;
}
