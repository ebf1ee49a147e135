/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* For instruction sets whose bytes can be looked up, but that cannot compress: which bytes of four 32-bit lanes to take so that
 * the low halves of the lanes of a mask come first. */
#ifndef QOBS_HISTOGRAM_PICK_H
#define QOBS_HISTOGRAM_PICK_H

#include <stdint.h>

#define LANE(i) 4 * (i), 4 * (i) + 1
static const uint8_t pick_bytes[16][8] = {
    {LANE(0), LANE(0), LANE(0), LANE(0)}, {LANE(0), LANE(0), LANE(0), LANE(0)}, {LANE(1), LANE(0), LANE(0), LANE(0)},
    {LANE(0), LANE(1), LANE(0), LANE(0)}, {LANE(2), LANE(0), LANE(0), LANE(0)}, {LANE(0), LANE(2), LANE(0), LANE(0)},
    {LANE(1), LANE(2), LANE(0), LANE(0)}, {LANE(0), LANE(1), LANE(2), LANE(0)}, {LANE(3), LANE(0), LANE(0), LANE(0)},
    {LANE(0), LANE(3), LANE(0), LANE(0)}, {LANE(1), LANE(3), LANE(0), LANE(0)}, {LANE(0), LANE(1), LANE(3), LANE(0)},
    {LANE(2), LANE(3), LANE(0), LANE(0)}, {LANE(0), LANE(2), LANE(3), LANE(0)}, {LANE(1), LANE(2), LANE(3), LANE(0)},
    {LANE(0), LANE(1), LANE(2), LANE(3)},
};
#undef LANE

#endif
