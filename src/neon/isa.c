/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The neon table. Built for the baseline, because usable() runs on every CPU. */
#include "neon/tuning.h"
#include "kernels/kernels.h"

static bool usable(void) { return true; /* part of the aarch64 baseline */ }

QOBS_KERNEL_TABLE(neon, "Advanced SIMD (aarch64)", usable);
