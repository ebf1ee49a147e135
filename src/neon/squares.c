/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON sums of squares; contract and limits in templates/squares.inl.h. */
#include "neon/tuning.h"

#include "templates/squares.inl.h"
