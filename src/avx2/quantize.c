/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 fake-quantize; contract and limits in templates/quantize.inl.h. */
#include "avx2/simd.h"

#include "templates/quantize.inl.h"
