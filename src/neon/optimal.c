/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON search for optimal scales; contract and limits in the templates. */
#include "neon/tuning.h"
#include "templates/optimal_error.inl.h"

#include "templates/optimal_curve.inl.h"
