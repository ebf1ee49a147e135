/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable sums of squares; contract and limits in templates/squares.inl.h. */
#include "scalar/tuning.h"

#define WITH_F64 /* all tables have these kernels */
#include "templates/squares.inl.h"
