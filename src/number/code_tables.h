/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels look up the codes of BF16 in these tables instead of dividing.
 *
 * The code of |x| / scale grows with the bits of |x|. It becomes c from a threshold on, a BF16. Doubling the scale adds
 * CODE_BINADE to the bits of each threshold, so that a table serves all scales with its significand. The distance of
 * |x| from the table's origin falls into a bucket of BF16 with at most one threshold. The table has an entry for each
 * bucket. The sum of entry and distance has the code in its high bits; the bits below mean nothing.
 *
 * Limits: thresholds are normal numbers, quotients are rounded to BF16, and there are no zero points. */
#pragma once

#include <stdint.h>

enum {
    CODE_BINADE = 128, /* BF16 from one power of two to the next */
    CODE_ENTRIES = 32,
    CODE_TABLES = 128, /* BF16 scales from 1 to 2 */
    SMALL_BUCKET = 4,  /* BF16 in a bucket, as a shift */
    E4M3_BUCKET = 3,
    SMALL_LAST = (CODE_ENTRIES << SMALL_BUCKET) - 1 /* the largest distance that has an entry */
};

/* One row for each BF16 scale from 1 to 2. The code of a sum starts at bit 4. Origins are bits of BF16.
 *   small  codes 0 to 8 of int4; the e4m3 up to the first normal one are the same multiples of 2^-9
 *   e4m3   codes of normal numbers; all binades have the same entries, and those of one are here twice. Distances are
 *          limited to e4m3_most, the distance of 448. */
struct code_tables {
    _Alignas(64) int16_t small[CODE_TABLES][CODE_ENTRIES];
    int16_t e4m3[CODE_TABLES][CODE_ENTRIES];
    int16_t small_origin[CODE_TABLES], e4m3_origin[CODE_TABLES], e4m3_most[CODE_TABLES];
};

/* The first call makes the tables. NULL: another thread is still doing so. */
const struct code_tables *qobs_code_tables(void);
