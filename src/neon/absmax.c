/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON absmax; contract and limits in templates/absmax.inl.h. */
#include "neon/simd.h"

#include "templates/absmax_all.inl.h"
