/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The scratch of qobs_optimal_group. */
#pragma once

#include "range/optimal_search.h"

/* Writes what all groups of at most n elements share into a scratch of theirs. */
void qobs_optimal_prepare(const struct optimal_params *params, float global_scale, size_t n, void *scratch);
