/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON absmax; contract and limits in templates/absmax.inl.h. */
#include "neon/simd.h"

#define WIDTH 16
#include "templates/absmax.inl.h"
#define WIDTH 32
#include "templates/absmax.inl.h"
#define WIDTH 64
#include "templates/absmax_plain.inl.h"

#include "templates/absmax_entries.inl.h"
