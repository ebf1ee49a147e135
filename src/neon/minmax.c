/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON minimum and maximum; contract and limits in templates/minmax.inl.h. */
#include "neon/simd.h"

#include "templates/minmax_all.inl.h"
