/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 search by a Hessian; contract and limits in templates/hessian.inl.h. */
#include "avx512/simd.h"

#include "templates/hessian.inl.h"
#include "templates/gptq.inl.h"
