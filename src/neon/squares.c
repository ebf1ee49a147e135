/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON sums of squares; contract and limits in templates/squares.inl.h. */
#include "neon/tuning.h"

#define ENTRY_(name) name##_neon
#define ENTRY(name) ENTRY_(name)
#include "templates/squares.inl.h"
