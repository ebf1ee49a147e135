/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Opens a template that is included once for each element WIDTH (16, 32, 64); width_end.h closes it and undefines
 * WIDTH. K(name)        name followed by the width: K(rows) is rows16, rows32 or rows64; search for "K(rows)" BITS, KEY
 * unsigned and signed integers of the width MOST_POSITIVE, MOST_NEGATIVE   limits of KEY LANES          elements of a
 * vector (VEC_BYTES), if there are vectors */
#include <string.h>

#include "kernels/kernel_minmax.h"

#define WIDTH_CAT_(a, b) a##b
#define WIDTH_CAT(a, b) WIDTH_CAT_(a, b)
#define K(name) WIDTH_CAT(name, WIDTH)
#define BITS K(bits)
#define KEY K(key)
#define MOST_POSITIVE ((KEY)((BITS) ~(BITS)0 >> 1))
#define MOST_NEGATIVE ((KEY)(-MOST_POSITIVE - 1))
#define LANES (VEC_BYTES * 8 / WIDTH)
