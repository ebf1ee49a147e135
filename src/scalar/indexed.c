/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable minimum and maximum of columns in groups: the definition the other instruction sets are checked against.
 * Accumulators: the caller's; counts 64 bits; element by element, so there is no tail. */
#include "scalar/tuning.h"

#define WIDTH 16
#include "templates/indexed.inl.h"
#define WIDTH 32
#include "templates/indexed.inl.h"
#define WIDTH 64
#include "templates/indexed.inl.h"

#include "templates/indexed_entries.inl.h"
