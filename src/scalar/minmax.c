/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable minimum and maximum: the definition the other instruction sets are checked against.
 * Accumulators: one pair of integer keys; counts 64 bits; element by element, so there is no tail. */
#include "scalar/tuning.h"

#define WIDTH 16
#include "templates/minmax_plain.inl.h"
#define WIDTH 32
#include "templates/minmax_plain.inl.h"
#define WIDTH 64
#include "templates/minmax_plain.inl.h"

#include "templates/minmax_entries.inl.h"
