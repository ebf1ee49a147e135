/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 range search; contract and limits in templates/search_errors.inl.h. */
#include "avx512/simd.h"

#include "templates/search_all.inl.h"
