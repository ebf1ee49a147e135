/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum of a batch whose columns g_idx scatters over groups: rows to kernels. */
#ifndef QOBS_STATISTIC_INDEXED_H
#define QOBS_STATISTIC_INDEXED_H

#include "kernels/kernels.h"
#include "plan/plan.h"

/* Merges into min and max, for a plan that has an order. Runs on the runtime's executor. */
int qobs_reduce_indexed(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                        const unsigned char *data, unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite,
                        qobs_error *error);

#endif
