/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON Gram of columns; contract and limits in templates/gram.inl.h. */
#include "neon/simd.h"
#include "neon/tuning.h"

#define ENTRY_(name) name##_neon
#define ENTRY(name) ENTRY_(name)
#include "templates/gram.inl.h"
