/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* llm-compressor's flatten_for_calibration (observers/helpers.py), present form and the one of October 2025. */
#include "base/error.h"
#include "plan/plan.h"

static int add(qobs_plan *plan, enum axis_role role, int dimension)
{
    return qobs_plan_add_axis(plan, role, plan->value.shape[dimension], plan->value.strides[dimension]);
}

static int refuse(const qobs_config *config, enum strategy strategy, qobs_error *error)
{
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "strategy: %s cannot be applied to base name %s",
                     qobs_strategy_text((int)strategy), qobs_base_name_text(config->base_name));
}

static int need_dimensions(const qobs_plan *plan, const qobs_config *config, enum strategy strategy, int quant_min, int most,
                           qobs_error *error)
{
    if (plan->value.ndim >= quant_min && plan->value.ndim <= most)
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                     "value: has %d dimensions, strategy %s of base name %s needs %d to %d", plan->value.ndim,
                     qobs_strategy_text((int)strategy), qobs_base_name_text(config->base_name), quant_min, most);
}

static int check_divides(const qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    const int64_t columns = plan->value.shape[plan->value.ndim - 1];
    if (columns % config->group_size == 0 || (config->ragged && config->base_name == BASE_WEIGHT))
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                     "group_size: %lld does not divide the last dimension of value, %lld", (long long)config->group_size,
                     (long long)columns);
}

static int flatten_weight(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    const struct view *v = &plan->value;
    const enum strategy strategy = qobs_config_strategy(config);
    const int last = v->ndim - 1;
    int status;
    switch (strategy) {
    case STRATEGY_TENSOR: /* (1, 1, elements) */
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
        for (int i = 0; i <= last; i++)
            add(plan, AXIS_GROUP, i);
        return QOBS_OK;
    case STRATEGY_CHANNEL: /* (1, ...experts, rows, 1, columns) */
        status = need_dimensions(plan, config, strategy, 1, QOBS_MAX_NDIM - 1, error);
        if (status != QOBS_OK)
            return status;
        for (int i = 0; i < last; i++)
            add(plan, AXIS_QPARAM, i);
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
        add(plan, AXIS_GROUP, last);
        return QOBS_OK;
    case STRATEGY_GROUP:
    case STRATEGY_TENSOR_GROUP: { /* (1, ...experts, rows, groups, group_size) */
        status = need_dimensions(plan, config, strategy, 1, QOBS_MAX_NDIM - 1, error);
        if (status == QOBS_OK)
            status = check_divides(plan, config, error);
        if (status != QOBS_OK)
            return status;
        for (int i = 0; i < last; i++)
            add(plan, AXIS_QPARAM, i);
        const int groups = qobs_plan_add_outer(plan, v->shape[last], config->group_size, v->strides[last]);
        qobs_plan_add_inner(plan, groups, v->shape[last], config->group_size, v->strides[last]);
        return QOBS_OK;
    }
    case STRATEGY_BLOCK: { /* (1, block rows, block columns, height * width) */
        status = need_dimensions(plan, config, strategy, 2, 2, error);
        if (status != QOBS_OK)
            return status;
        int outer[2];
        for (int i = 0; i < 2; i++) {
            if (config->version == VERSION_2025_10 && v->shape[i] % config->block[i] != 0)
                return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                                 "block_structure: %lld does not divide dimension %d of value, %lld (version 2025-10)",
                                 (long long)config->block[i], i, (long long)v->shape[i]);
            outer[i] = qobs_plan_add_outer(plan, v->shape[i], config->block[i], v->strides[i]);
        }
        for (int i = 0; i < 2; i++)
            qobs_plan_add_inner(plan, outer[i], v->shape[i], config->block[i], v->strides[i]);
        plan->padded = v->shape[0] % config->block[0] != 0 || v->shape[1] % config->block[1] != 0;
        return QOBS_OK;
    }
    default:
        return refuse(config, strategy, error);
    }
}

static int flatten_activation(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    const struct view *v = &plan->value;
    const enum strategy strategy = qobs_config_strategy(config);
    const int last = v->ndim - 1;
    int status;
    switch (strategy) {
    case STRATEGY_TENSOR: /* (tokens, 1, hidden) */
        status = need_dimensions(plan, config, strategy, 1, QOBS_MAX_NDIM, error);
        if (status != QOBS_OK)
            return status;
        for (int i = 0; i < last; i++)
            add(plan, AXIS_OBSERVATION, i);
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
        add(plan, AXIS_GROUP, last);
        return QOBS_OK;
    case STRATEGY_TOKEN: /* (batch, seq, hidden) */
        status = need_dimensions(plan, config, strategy, 2, QOBS_MAX_NDIM, error);
        if (status != QOBS_OK)
            return status;
        add(plan, AXIS_OBSERVATION, 0);
        for (int i = 1; i < last; i++)
            add(plan, AXIS_QPARAM, i);
        add(plan, AXIS_GROUP, last);
        return QOBS_OK;
    case STRATEGY_GROUP:
    case STRATEGY_TENSOR_GROUP: { /* (batch * seq, groups, group_size); 2-D values are (tokens, hidden), unlike upstream */
        status = need_dimensions(plan, config, strategy, 2, QOBS_MAX_NDIM, error);
        if (status == QOBS_OK)
            status = check_divides(plan, config, error);
        if (status != QOBS_OK)
            return status;
        for (int i = 0; i < last; i++)
            add(plan, i < 2 ? AXIS_OBSERVATION : AXIS_QPARAM, i);
        const int groups = qobs_plan_add_outer(plan, v->shape[last], config->group_size, v->strides[last]);
        qobs_plan_add_inner(plan, groups, v->shape[last], config->group_size, v->strides[last]);
        return QOBS_OK;
    }
    default:
        return refuse(config, strategy, error);
    }
}

static int flatten_attention(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    const enum strategy strategy = qobs_config_strategy(config);
    if (strategy != STRATEGY_TENSOR && (strategy != STRATEGY_ATTN_HEAD || config->version == VERSION_2025_10))
        return refuse(config, strategy, error);
    const int status = need_dimensions(plan, config, strategy, 4, 4, error);
    if (status != QOBS_OK)
        return status;
    /* (batch, heads, seq, head_dim) now, (batch, seq, heads, head_dim) in the 2025-10 form */
    const int heads = config->version == VERSION_2025_10 ? 2 : 1, seq = 3 - heads;
    add(plan, AXIS_OBSERVATION, 0);
    add(plan, AXIS_OBSERVATION, seq);
    if (strategy == STRATEGY_TENSOR) { /* (batch * seq, 1, heads * head_dim) */
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
        add(plan, AXIS_GROUP, heads);
    } else { /* (batch * seq, heads, 1, 1, head_dim) */
        add(plan, AXIS_QPARAM, heads);
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
    }
    add(plan, AXIS_GROUP, 3);
    return QOBS_OK;
}

int qobs_flatten_llmc(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    if (config->version == VERSION_2025_09)
        return qobs_flatten_llmc_2025_09(plan, config, error);
    switch (config->base_name) {
    case BASE_WEIGHT:
        return flatten_weight(plan, config, error);
    case BASE_INPUT:
    case BASE_OUTPUT:
        return flatten_activation(plan, config, error);
    default:
        return flatten_attention(plan, config, error);
    }
}
