/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON search by a Hessian; contract and limits in templates/hessian.inl.h. */
#include "neon/simd.h"

#include "templates/hessian.inl.h"
#include "templates/gptq.inl.h"
