/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON absmax; contract and limits in src/absmax.inl.h. */
#include "neon/vec.h"

#include "kernels.h"

#define WIDTH 16
#include "absmax.inl.h"
#undef WIDTH
#define WIDTH 32
#include "absmax.inl.h"
#undef WIDTH
#define WIDTH 64
#include "absmax.inl.h"
#undef WIDTH

#define ENTRY(name) name##_neon
#include "absmax_entries.inl.h"
