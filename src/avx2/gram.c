/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 Gram of columns; contract and limits in templates/gram.inl.h. */
#include "avx2/simd.h"

#include "templates/gram.inl.h"
