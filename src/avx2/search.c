/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 range search; contract and limits in templates/search_errors.inl.h. */
#include "avx2/simd.h"

#include "templates/search_all.inl.h"
