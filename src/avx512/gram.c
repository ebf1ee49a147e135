/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 Gram of columns; contract and limits in templates/gram.inl.h. */
#include "avx512/simd.h"

#include "templates/gram.inl.h"
