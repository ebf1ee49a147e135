/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* How often a test repeats a random case. Cases come from a fixed seed, so the few are the first of the whole. */
#ifndef QOBS_TEST_REPEATS_H
#define QOBS_TEST_REPEATS_H

#include <stdbool.h>
#include <stdlib.h>

#include "qobs/qobs.h"

/* `whole` with QOBS_WHOLE in the environment, as `meson test --setup whole` sets it, else `few`. */
static inline int repeats(int few, int whole) { return getenv("QOBS_WHOLE") ? whole : few; }

/* Says if an instruction set meets the t-th of three numbers of threads. The last one that is usable meets all, each
 * other one; with QOBS_WHOLE each meets all. */
static inline bool meets_threads(size_t isa, size_t t)
{
    size_t last = qobs_isa_count() - 1;
    while (!qobs_isa_usable(last)) /* scalar is always usable */
        last--;
    return t == isa % 3 || isa == last || repeats(0, 1);
}

#endif
