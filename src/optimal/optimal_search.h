/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search of a whole weight for optimal scales. */
#pragma once

#include "optimal/optimal.h"

/* Searches every qparam of the plan and allocates the result, which the caller releases, also after an error. Fails if
 * importance cannot be used and params->optimal.strict is set. Runs on the executor. */
int qobs_optimal_search(const struct optimal_search *search, struct optimal_result *result, qobs_error *error);
