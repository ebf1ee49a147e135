/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* For instruction sets whose bytes can be looked up, but that cannot compress: which bytes of four 32-bit lanes to take so that
 * the lanes of a mask come first, or the low halves of those lanes. */
#ifndef QOBS_HISTOGRAM_PICK_H
#define QOBS_HISTOGRAM_PICK_H

#include <stdint.h>

#define MASKS                                                                                                         \
    {                                                                                                                 \
        PICK(0, 0, 0, 0), PICK(0, 0, 0, 0), PICK(1, 0, 0, 0), PICK(0, 1, 0, 0), PICK(2, 0, 0, 0), PICK(0, 2, 0, 0),   \
            PICK(1, 2, 0, 0), PICK(0, 1, 2, 0), PICK(3, 0, 0, 0), PICK(0, 3, 0, 0), PICK(1, 3, 0, 0),                 \
            PICK(0, 1, 3, 0), PICK(2, 3, 0, 0), PICK(0, 2, 3, 0), PICK(1, 2, 3, 0), PICK(0, 1, 2, 3)                  \
    }

#define LANE(i) 4 * (i), 4 * (i) + 1, 4 * (i) + 2, 4 * (i) + 3
#define PICK(a, b, c, d) {LANE(a), LANE(b), LANE(c), LANE(d)}
static const uint8_t pick_lanes[16][16] = MASKS;
#undef LANE
#undef PICK

#define LANE(i) 4 * (i), 4 * (i) + 1
#define PICK(a, b, c, d) {LANE(a), LANE(b), LANE(c), LANE(d)}
static const uint8_t pick_halves[16][8] = MASKS;
#undef LANE
#undef PICK
#undef MASKS

#endif
