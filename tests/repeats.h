/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* How often a test repeats a random case. Cases come from a fixed seed, so the few are the first of the whole. */
#ifndef QOBS_TEST_REPEATS_H
#define QOBS_TEST_REPEATS_H

#include <stdlib.h>

/* `whole` with QOBS_WHOLE in the environment, as `meson test --setup whole` sets it, else `few`. */
static inline int repeats(int few, int whole) { return getenv("QOBS_WHOLE") ? whole : few; }

#endif
