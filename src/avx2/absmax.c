/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 absmax; contract and limits in templates/absmax.inl.h. */
#include "avx2/simd.h"

#include "templates/absmax_all.inl.h"
