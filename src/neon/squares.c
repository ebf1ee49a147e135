/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON sums of squares; contracts and limits in templates/squares.inl.h and templates/squared_errors.inl.h. */
#include "neon/tuning.h"

#define ENTRY_(name) name##_neon
#define ENTRY(name) ENTRY_(name)
#include "templates/squared_errors.inl.h"
#include "templates/squares.inl.h"
