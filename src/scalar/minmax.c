/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable minimum and maximum: the definition the other instruction sets are checked against.
 * Accumulators: one pair of integer keys; counts 64 bits; element by element, so there is no tail. */
#include "scalar/tuning.h"

#include "templates/minmax_all.inl.h"
