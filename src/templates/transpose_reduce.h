/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Cases of transpose_reduce.inl.h and short_runs.inl.h. They do not depend on the element width. */
#pragma once

/* The length of short runs in vectors. */
enum run_layout {
    OVER_4_VECTORS,
    OVER_2_VECTORS, /* up to 4 */
    OVER_1_VECTOR,  /* up to 2 */
    ONE_VECTOR,
    HALF_VECTORS,   /* contiguous runs of half a vector */
    QUARTER_VECTORS /* contiguous runs of a quarter of a vector */
};

/* The form of accumulators. Raw bits need no conversion in the loop but are right only if a run has elements of both
 * signs: then the largest bits as signed integers are the maximum, and the largest as unsigned integers are the
 * minimum. Magnitudes have no minimum. */
enum bounds_form { AS_KEYS, AS_RAW_BITS, AS_MAGNITUDES };
