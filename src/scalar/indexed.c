/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable minimum and maximum of columns in groups: the definition the other instruction sets are checked against.
 * Accumulators: the caller's; counts 64 bits; element by element, so there is no tail. */
#include "scalar/tuning.h"

#include "templates/indexed_all.inl.h"
