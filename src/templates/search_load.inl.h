/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Elements of any dtype as floats for range search, plain C for every instruction set; included by src/ISA/search.c
 * with its ENTRY. One dtype is search_load_native.inl.h.
 *
 * Accumulators: none.
 * Overflow: the caller's factor brings magnitudes below 0.5. Nothing outside a run is read or written.
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h). */
#include "number/grid.h"
#include "kernels/kernel_search.h"
#include "number/native.h"

#ifndef WITH_F64
#define NATIVE_NARROW
#endif
#define NATIVE_BODY "templates/search_load_native.inl.h"
#include "number/native_each.inl.h"
