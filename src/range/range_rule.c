/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "range/range_rule.h"

const struct range_ops qobs_range_measured = {.search = SEARCH_NONE};
const struct range_ops qobs_range_non_linear = {.search = SEARCH_NONE};
const struct range_ops qobs_range_percentile = {.search = SEARCH_NONE};
const struct range_ops qobs_range_bins_mse = {.search = SEARCH_NONE};
const struct range_ops qobs_range_amax = {.search = SEARCH_NONE};
const struct range_ops qobs_range_never = {.search = SEARCH_NONE};
