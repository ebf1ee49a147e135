/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 minimum and maximum; contract and limits in templates/minmax.inl.h. */
#include "avx2/simd.h"

#include "templates/minmax_all.inl.h"
