/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable search by a Hessian; contract and limits in templates/hessian.inl.h. */
#include "scalar/tuning.h"

#define ENTRY_(name) name##_scalar
#define ENTRY(name) ENTRY_(name)
#include "templates/hessian.inl.h"
