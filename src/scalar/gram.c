/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable Gram of columns; contract and limits in templates/gram.inl.h. */
#include "scalar/simd.h"
#include "scalar/tuning.h"

#define ENTRY_(name) name##_scalar
#define ENTRY(name) ENTRY_(name)
#include "templates/gram.inl.h"
