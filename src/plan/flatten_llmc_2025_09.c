/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* llm-compressor's Observer.get_qparams of September 2025 (observers/base.py). It knows no base name. Ranges keep the
 * reduced dimensions with size 1. Blocks and groups at an edge are short, and groups of g_idx have as many columns as
 * it names them. Strategy token has a range for each batch and token, as upstream intends (its min/max observer reduces
 * everything there). */
#include "base/error.h"
#include "plan/make_plan.h"

static int need_dimensions(const qobs_plan *plan, const struct granularity_params *params, int min, int max,
                           qobs_error *error)
{
    if (plan->value.ndim >= min && plan->value.ndim <= max)
        return QOBS_OK;
    return qobs_invalid(error, "value: has %d dimensions, strategy %s of version 2025-09 needs %d to %d",
                        plan->value.ndim, qobs_strategy_text((int)params->strategy), min, max);
}

/* One range for each index of the first `kept` dimensions. */
static int flatten_leading(qobs_plan *plan, const struct granularity_params *params, int kept, qobs_error *error)
{
    const bool keeps[QOBS_MAX_NDIM] = {true, kept > 1};
    RETURN_IF_FAILED(need_dimensions(plan, params, kept, QOBS_MAX_NDIM, error));
    if (plan->value.ndim > kept)
        qobs_plan_add_kept(plan, keeps);
    else /* torch reduces everything if no dimension is left to reduce */
        qobs_plan_add_global(plan);
    return QOBS_OK;
}

static int flatten_block(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    RETURN_IF_FAILED(need_dimensions(plan, params, 2, 2, error));
    qobs_plan_add_blocks(plan, params->block);
    plan->keying = KEYING_BLOCKS;
    return QOBS_OK;
}

static int flatten_group(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    RETURN_IF_FAILED(need_dimensions(plan, params, 2, 2, error));
    qobs_plan_add_dimension(plan, AXIS_QPARAM, 0);
    qobs_plan_add_groups(plan, 1, params->group_size);
    plan->keying = KEYING_GROUPS;
    return QOBS_OK;
}

static int flatten(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    plan->keying = KEYING_DEFAULT;
    switch (params->strategy) {
    case STRATEGY_TENSOR:
        qobs_plan_add_global(plan);
        return QOBS_OK;
    case STRATEGY_CHANNEL:
        return flatten_leading(plan, params, 1, error);
    case STRATEGY_TOKEN:
        return flatten_leading(plan, params, 2, error);
    case STRATEGY_GROUP:
    case STRATEGY_TENSOR_GROUP:
        return flatten_group(plan, params, error);
    case STRATEGY_BLOCK:
        return flatten_block(plan, params, error);
    default:
        return qobs_invalid(error, "strategy: %s is none of version 2025-09",
                            qobs_strategy_text((int)params->strategy));
    }
}

static bool shared(const struct granularity_params *p, int64_t *rows, int64_t *columns)
{
    return p->strategy == STRATEGY_TOKEN || qobs_llmc_weight_shared(p, rows, columns);
}

const struct granularity_ops qobs_granularity_llmc_2025_09 = {.flatten = flatten, .g_idx = true, .shared = shared};
