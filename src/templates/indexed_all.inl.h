/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Columns in groups of every element width with their slots; included by src/ISA/indexed.c after its simd.h, or
 * tuning.h without vectors. An instruction set with another way for 16 bits defines PERMUTED. */
#define WIDTH 16
#include "templates/indexed.inl.h"
#undef PERMUTED
#define WIDTH 32
#include "templates/indexed.inl.h"
#define WIDTH 64
#include "templates/indexed.inl.h"

#include "templates/indexed_entries.inl.h"
