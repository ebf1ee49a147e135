/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum of a batch whose columns g_idx spreads over groups. */
#pragma once

#include "kernels/kernels.h"
#include "plan/plan.h"
#include "qobs/plan.h"

/* Merges the batch into min and max. The plan has an order (g_idx). Runs on the runtime's executor. */
int qobs_reduce_indexed(const struct runtime *runtime, const struct kernel_table *kernels, const qobs_plan *plan,
                        const unsigned char *data, unsigned char *min, unsigned char *max,
                        struct nonfinite_count *nonfinite, qobs_error *error);
