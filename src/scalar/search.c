/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable range search; contract and limits in templates/search_errors.inl.h. */
#include "scalar/simd.h"

#define WITH_F64 /* all tables have these kernels */
#include "templates/search_errors.inl.h"

#include "templates/search_load.inl.h"

#include "templates/search_native.inl.h"

#include "templates/search_row_sums.inl.h"

#include "templates/search_shrink.inl.h"
