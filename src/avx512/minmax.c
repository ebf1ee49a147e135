/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 minimum and maximum; contract and limits in templates/minmax.inl.h. */
#include "avx512/prefer_avx2.h"
#include "avx512/simd.h"

#include "templates/minmax_all.inl.h"
