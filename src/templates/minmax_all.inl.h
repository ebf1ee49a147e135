/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum of every element width with their slots; included by src/ISA/minmax.c after its simd.h, or
 * tuning.h without vectors. F64 is plain C. */
#ifdef VEC_REGISTERS
#define BODY "templates/minmax.inl.h"
#else
#define BODY "templates/minmax_plain.inl.h"
#endif
#define WIDTH 16
#include BODY
#define WIDTH 32
#include BODY
#define WIDTH 64
#include "templates/minmax_plain.inl.h"
#undef BODY

#include "templates/minmax_entries.inl.h"
