/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable absmax: the definition the other instruction sets are checked against.
 * Accumulators: one integer of bits without the sign; counts 64 bits; element by element, so there is no tail. */
#include "scalar/tuning.h"

#include "templates/absmax_all.inl.h"
