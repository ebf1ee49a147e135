/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 search by a Hessian; contract and limits in templates/hessian.inl.h. */
#include "avx2/simd.h"

#include "templates/hessian.inl.h"
#include "templates/gptq.inl.h"
