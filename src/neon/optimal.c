/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON search for optimal scales; contract and limits in the templates. */
#define ENTRY_(name) name##_neon
#define ENTRY(name) ENTRY_(name)
#include "templates/optimal_error.inl.h"

#include "templates/optimal_curve.inl.h"
