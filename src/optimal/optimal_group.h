/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The best scale and zero point of one group for errors sum h * e * e. */
#pragma once

#include "optimal/optimal.h"

/* Writes what all groups of at most n elements share into a scratch of theirs. */
void qobs_optimal_prepare(const struct optimal_params *params, float global_scale, size_t n, void *scratch);

/* The best candidate for errors sum h * e * e. `scratch`: qobs_optimal_scratch() bytes, aligned to 64. */
void qobs_optimal_group(const struct kernel_table *kernels, const struct optimal_params *params,
                        const struct optimal_group *group, void *scratch, struct optimal_choice *choice);
size_t qobs_optimal_scratch(const struct optimal_params *params, size_t n);
