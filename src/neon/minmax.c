/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON min/max; contract and limits in src/minmax.inl.h. */
#include "neon/vec.h"

#include "kernels/kernel_minmax.h"

#define WIDTH 16
#include "templates/minmax.inl.h"
#undef WIDTH
#define WIDTH 32
#include "templates/minmax.inl.h"
#undef WIDTH
#define WIDTH 64
#include "templates/minmax.inl.h"
#undef WIDTH

#define ENTRY(name) name##_neon
#include "templates/minmax_entries.inl.h"
