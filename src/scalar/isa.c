/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The scalar table. It is usable everywhere. */
#include "scalar/tuning.h"
#include "kernels/kernels.h"

static bool usable(void) { return true; }

QOBS_KERNEL_TABLE(scalar, "portable C", usable);
