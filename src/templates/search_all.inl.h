/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Every range search with its slots; included by src/ISA/search.c after its simd.h. */
#include "templates/search_errors.inl.h"

#include "templates/search_load.inl.h"

#include "templates/search_native.inl.h"

#include "templates/search_row_sums.inl.h"

#include "templates/search_shrink.inl.h"
