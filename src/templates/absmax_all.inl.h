/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Magnitudes of every element width with their slots; included by src/ISA/absmax.c after its simd.h, or tuning.h
 * without vectors. F64 is plain C. */
#ifdef VEC_REGISTERS
#define BODY "templates/absmax.inl.h"
#else
#define BODY "templates/absmax_plain.inl.h"
#endif
#define WIDTH 16
#include BODY
#define WIDTH 32
#include BODY
#define WIDTH 64
#include "templates/absmax_plain.inl.h"
#undef BODY

#include "templates/absmax_entries.inl.h"
