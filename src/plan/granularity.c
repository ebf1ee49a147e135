/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The words of granularity settings, and the granularity of observers without ranges. */
#include "plan/granularity.h"

#include "base/error.h"

const char *qobs_base_name_text(int base_name)
{
    static const char *const text[] = {[BASE_WEIGHT] = "weight", [BASE_INPUT] = "input", [BASE_OUTPUT] = "output",
                                       [BASE_Q] = "q",           [BASE_K] = "k",         [BASE_V] = "v"};
    return base_name >= 0 && base_name <= BASE_V ? text[base_name] : "?";
}

const char *qobs_strategy_text(int strategy)
{
    static const char *const text[] = {[STRATEGY_TENSOR] = "tensor",      [STRATEGY_CHANNEL] = "channel",
                                       [STRATEGY_GROUP] = "group",        [STRATEGY_TENSOR_GROUP] = "tensor_group",
                                       [STRATEGY_BLOCK] = "block",        [STRATEGY_TOKEN] = "token",
                                       [STRATEGY_ATTN_HEAD] = "attn_head"};
    return strategy > STRATEGY_NONE && strategy <= STRATEGY_ATTN_HEAD ? text[strategy] : "?";
}

static int fail_without_ranges(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    (void)plan;
    return qobs_invalid(error, "config: %s looks at no tensor", params->name);
}

const struct granularity_ops qobs_granularity_none = {.flatten = fail_without_ranges};
