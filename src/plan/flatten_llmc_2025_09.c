/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* llm-compressor's Observer.get_qparams of September 2025 (observers/base.py). It knows no base name; ranges keep the reduced
 * dimensions with size 1, blocks and groups at an edge are short, and groups of g_idx have as many columns as it names them. Of
 * tokens both batch and token are kept, as upstream means it (its min/max observer reduces everything there). */
#include "base/error.h"
#include "plan/plan.h"

static int need_dimensions(const qobs_plan *plan, enum strategy strategy, int quant_min, int most, qobs_error *error)
{
    if (plan->value.ndim >= quant_min && plan->value.ndim <= most)
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                     "value: has %d dimensions, strategy %s of version 2025-09 needs %d to %d", plan->value.ndim,
                     qobs_strategy_text((int)strategy), quant_min, most);
}

static int flatten_block(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    const struct view *v = &plan->value;
    const int status = need_dimensions(plan, STRATEGY_BLOCK, 2, 2, error);
    if (status != QOBS_OK)
        return status;
    int outer[2];
    for (int i = 0; i < 2; i++)
        outer[i] = qobs_plan_add_outer(plan, v->shape[i], config->block[i], v->strides[i]);
    for (int i = 0; i < 2; i++)
        qobs_plan_add_inner(plan, outer[i], v->shape[i], config->block[i], v->strides[i]);
    plan->keying = KEYING_BLOCKS;
    return QOBS_OK;
}

static int flatten_group(qobs_plan *plan, const qobs_config *config, enum strategy strategy, qobs_error *error)
{
    const struct view *v = &plan->value;
    const int status = need_dimensions(plan, strategy, 2, 2, error);
    if (status != QOBS_OK)
        return status;
    qobs_plan_add_axis(plan, AXIS_QPARAM, v->shape[0], v->strides[0]);
    const int groups = qobs_plan_add_outer(plan, v->shape[1], config->group_size, v->strides[1]);
    qobs_plan_add_inner(plan, groups, v->shape[1], config->group_size, v->strides[1]);
    plan->keying = KEYING_GROUPS;
    return QOBS_OK;
}

int qobs_flatten_llmc_2025_09(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    const enum strategy strategy = qobs_config_strategy(config);
    bool kept[QOBS_MAX_NDIM] = {true};
    int status = QOBS_OK;
    plan->keying = KEYING_DEFAULT;
    switch (strategy) {
    case STRATEGY_TENSOR:
        qobs_flatten_whole(plan);
        return QOBS_OK;
    case STRATEGY_CHANNEL:
    case STRATEGY_TOKEN:
        kept[1] = strategy == STRATEGY_TOKEN;
        status = need_dimensions(plan, strategy, kept[1] ? 2 : 1, QOBS_MAX_NDIM, error);
        if (status != QOBS_OK)
            return status;
        if (plan->value.ndim > (kept[1] ? 2 : 1))
            qobs_flatten_kept(plan, kept);
        else /* nothing would be reduced, and to torch that means everything */
            qobs_flatten_whole(plan);
        return QOBS_OK;
    case STRATEGY_GROUP:
    case STRATEGY_TENSOR_GROUP:
        return flatten_group(plan, config, strategy, error);
    case STRATEGY_BLOCK:
        return flatten_block(plan, config, error);
    default:
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "strategy: %s is none of version 2025-09",
                         qobs_strategy_text((int)strategy));
    }
}
