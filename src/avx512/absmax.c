/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 absmax; contract and limits in templates/absmax.inl.h. */
#include "avx512/prefer_avx2.h"
#include "avx512/simd.h"

#include "templates/absmax_all.inl.h"
