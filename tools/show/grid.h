/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The numbers that a quantized element can have. */
#ifndef QOBS_TOOLS_SHOW_GRID_H
#define QOBS_TOOLS_SHOW_GRID_H

#include <stddef.h>

#include "qobs/format.h"
#include "qobs/qobs.h"

/* Returns the number format that the settings of a configuration mean. NULL: not known. */
const qobs_format *grid_format(const qobs_config *config);

/* Writes the numbers (code - zero_point) * scale of all codes of a format of at most 8 bits, in ascending order, and
 * returns their number; 0 for wider formats. Settings that leave out codes (quant_min, quant_max, reduce_range) do. */
enum { MAX_GRID = 256 };
size_t grid_levels(const qobs_config *config, double scale, double zero_point, double levels[MAX_GRID]);

#endif
