/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON fake-quantize; contract and limits in templates/quantize.inl.h. */
#include "neon/simd.h"

#include "templates/quantize.inl.h"
