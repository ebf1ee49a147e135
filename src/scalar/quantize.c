/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable fake-quantize; contract and limits in templates/quantize.inl.h. */
#include "scalar/simd.h"

#define WITH_F64 /* all tables have these kernels */
#include "templates/quantize.inl.h"
