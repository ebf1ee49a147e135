/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 fake-quantize; contract and limits in templates/quantize.inl.h. */
#include "avx512/code_lookup.h"
#include "avx512/prefer_avx2.h"

#include "templates/quantize.inl.h"
