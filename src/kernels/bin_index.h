/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The bin of an element, as every kernel finds it. */
#pragma once

#include "kernels/kernels.h"

/* x lies in the range of the binning. */
static inline uint32_t qobs_bin_index(const struct binning *b, float x)
{
    const uint32_t k = (uint32_t)((x * b->scale - b->from) * (float)b->bins / b->width);
    return k < b->bins ? k : b->bins - 1;
}
