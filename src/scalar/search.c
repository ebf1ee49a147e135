/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable range search; contract and limits in templates/search_errors.inl.h. */
#include "scalar/simd.h"

#define WITH_F64 /* all tables have these kernels */
#include "templates/search_all.inl.h"
