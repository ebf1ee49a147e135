/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scalar search for optimal scales; contract and limits in the templates. */
#include "scalar/tuning.h"
#include "templates/optimal_error.inl.h"

#include "templates/optimal_curve.inl.h"
