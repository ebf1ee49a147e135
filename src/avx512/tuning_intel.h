/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Limits of the avx512 kernels that exist a second time for Intel processors. Measured on an Intel Xeon (L1 48 KB, L2 2
 * MB, a share of an L3 of 480 MB) in November 2026. A cycle has one integer minimum or maximum of 512 bits, one
 * comparison and two blends; on the machine of avx512/tuning.h it has two, one and two. */
#pragma once

#include "avx512/tuning.h"

#define BLENDED_MAXIMA 1 /* a comparison and a blend instead of a part of the maxima */
#define BYTES_AHEAD 4096 /* prefetched into L1, which costs little from L2 */
