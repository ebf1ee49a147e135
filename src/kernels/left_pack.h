/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Byte shuffles that left-pack four 32-bit lanes, or the low halves of these lanes: the lanes of a mask come first,
 * in order. For instruction sets that can shuffle bytes but not compress. */
#pragma once

#include <stdint.h>

#define MASKS                                                                                                          \
    {PACK(0, 0, 0, 0), PACK(0, 0, 0, 0), PACK(1, 0, 0, 0), PACK(0, 1, 0, 0), PACK(2, 0, 0, 0), PACK(0, 2, 0, 0),       \
     PACK(1, 2, 0, 0), PACK(0, 1, 2, 0), PACK(3, 0, 0, 0), PACK(0, 3, 0, 0), PACK(1, 3, 0, 0), PACK(0, 1, 3, 0),       \
     PACK(2, 3, 0, 0), PACK(0, 2, 3, 0), PACK(1, 2, 3, 0), PACK(0, 1, 2, 3)}

#define LANE(i) 4 * (i), 4 * (i) + 1, 4 * (i) + 2, 4 * (i) + 3
#define PACK(a, b, c, d) {LANE(a), LANE(b), LANE(c), LANE(d)}
static const uint8_t left_pack_lanes[16][16] = MASKS;
#undef LANE
#undef PACK

#define LANE(i) 4 * (i), 4 * (i) + 1
#define PACK(a, b, c, d) {LANE(a), LANE(b), LANE(c), LANE(d)}
static const uint8_t left_pack_halves[16][8] = MASKS;
#undef LANE
#undef PACK
#undef MASKS
