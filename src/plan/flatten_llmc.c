/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* llm-compressor's flatten_for_calibration (observers/helpers.py), present form and the one of October 2025, which does
 * not pad blocks. */
#include "plan/make_plan.h"

static int fail_strategy(const struct granularity_params *params, qobs_error *error)
{
    return qobs_invalid(error, "strategy: %s cannot be applied to base name %s",
                        qobs_word_text(qobs_strategies, params->strategy),
                        qobs_word_text(qobs_base_names, params->base_name));
}

static int need_dimensions(const qobs_plan *plan, const struct granularity_params *params, int min, int max,
                           qobs_error *error)
{
    if (plan->value.ndim >= min && plan->value.ndim <= max)
        return QOBS_OK;
    return qobs_invalid(error, "value: has %d dimensions, strategy %s of base name %s needs %d to %d", plan->value.ndim,
                        qobs_word_text(qobs_strategies, params->strategy),
                        qobs_word_text(qobs_base_names, params->base_name), min, max);
}

static int check_divides(const qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    return params->ragged
               ? QOBS_OK
               : qobs_plan_check_divides(plan, "group_size: ", params->group_size, plan->value.ndim - 1, error);
}

static int flatten_weight(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    const struct view *v = &plan->value;
    const int last = v->ndim - 1;
    switch (params->strategy) {
    case STRATEGY_TENSOR: /* (1, 1, elements) */
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
        qobs_plan_add_dimensions(plan, AXIS_GROUP, 0, v->ndim);
        return QOBS_OK;
    case STRATEGY_CHANNEL: /* (1, ...experts, rows, 1, columns) */
        RETURN_IF_FAILED(need_dimensions(plan, params, 1, QOBS_MAX_NDIM - 1, error));
        qobs_plan_add_dimensions(plan, AXIS_QPARAM, 0, last);
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
        qobs_plan_add_dimension(plan, AXIS_GROUP, last);
        return QOBS_OK;
    case STRATEGY_GROUP:
    case STRATEGY_TENSOR_GROUP: /* (1, ...experts, rows, groups, group_size) */
        RETURN_IF_FAILED(need_dimensions(plan, params, 1, QOBS_MAX_NDIM - 1, error));
        RETURN_IF_FAILED(check_divides(plan, params, error));
        qobs_plan_add_dimensions(plan, AXIS_QPARAM, 0, last);
        qobs_plan_add_groups(plan, last, params->group_size);
        return QOBS_OK;
    case STRATEGY_BLOCK: /* (1, block rows, block columns, height * width) */
        RETURN_IF_FAILED(need_dimensions(plan, params, 2, 2, error));
        for (int i = 0; params->whole_blocks && i < 2; i++)
            RETURN_IF_FAILED(qobs_plan_check_divides(plan, "block_structure: ", params->block[i], i, error));
        qobs_plan_add_blocks(plan, params->block);
        plan->padded = v->shape[0] % params->block[0] != 0 || v->shape[1] % params->block[1] != 0;
        return QOBS_OK;
    default:
        return fail_strategy(params, error);
    }
}

static int flatten_activation(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    const int last = plan->value.ndim - 1;
    switch (params->strategy) {
    case STRATEGY_TENSOR: /* (tokens, 1, hidden) */
        RETURN_IF_FAILED(need_dimensions(plan, params, 1, QOBS_MAX_NDIM, error));
        qobs_plan_add_dimensions(plan, AXIS_OBSERVATION, 0, last);
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
        qobs_plan_add_dimension(plan, AXIS_GROUP, last);
        return QOBS_OK;
    case STRATEGY_TOKEN: /* (batch, seq, hidden) */
        RETURN_IF_FAILED(need_dimensions(plan, params, 2, QOBS_MAX_NDIM, error));
        qobs_plan_add_dimension(plan, AXIS_OBSERVATION, 0);
        qobs_plan_add_dimensions(plan, AXIS_QPARAM, 1, last);
        qobs_plan_add_dimension(plan, AXIS_GROUP, last);
        return QOBS_OK;
    case STRATEGY_GROUP:
    case STRATEGY_TENSOR_GROUP: /* (batch * seq, groups, group_size); 2-D values are (tokens, hidden), unlike upstream
                                 */
        RETURN_IF_FAILED(need_dimensions(plan, params, 2, QOBS_MAX_NDIM, error));
        RETURN_IF_FAILED(check_divides(plan, params, error));
        for (int i = 0; i < last; i++)
            qobs_plan_add_dimension(plan, i < 2 ? AXIS_OBSERVATION : AXIS_QPARAM, i);
        qobs_plan_add_groups(plan, last, params->group_size);
        return QOBS_OK;
    default:
        return fail_strategy(params, error);
    }
}

static int flatten_attention(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    if (params->strategy != STRATEGY_TENSOR &&
        (params->strategy != STRATEGY_ATTN_HEAD || params->attention == SEQUENCE_FIRST))
        return fail_strategy(params, error);
    RETURN_IF_FAILED(need_dimensions(plan, params, 4, 4, error));
    const int heads = params->attention == HEADS_FIRST ? 1 : 2;
    qobs_plan_add_dimension(plan, AXIS_OBSERVATION, 0);
    qobs_plan_add_dimension(plan, AXIS_OBSERVATION, 3 - heads);
    if (params->strategy == STRATEGY_TENSOR) { /* (batch * seq, 1, heads * head_dim) */
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
        qobs_plan_add_dimension(plan, AXIS_GROUP, heads);
    } else { /* (batch * seq, heads, 1, 1, head_dim) */
        qobs_plan_add_dimension(plan, AXIS_QPARAM, heads);
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
    }
    qobs_plan_add_dimension(plan, AXIS_GROUP, 3);
    return QOBS_OK;
}

/* The `shared` of llmc_weight. */
static bool weight_shared(const struct granularity_params *p, int64_t *rows, int64_t *columns)
{
    const bool block = p->strategy == STRATEGY_BLOCK;
    *rows = block ? p->block[0] : p->strategy == STRATEGY_TENSOR ? 0 : 1;
    *columns = block ? p->block[1] : qobs_has_groups(p->strategy) ? p->group_size : 0;
    return p->strategy != STRATEGY_TOKEN && p->strategy != STRATEGY_ATTN_HEAD;
}

/* All rows of a matrix are one batch, or one token. */
static bool activation_shared(const struct granularity_params *p, int64_t *rows, int64_t *columns)
{
    const bool grouped = qobs_has_groups(p->strategy);
    *rows = 0;
    *columns = grouped ? p->group_size : 0;
    return grouped || p->strategy == STRATEGY_TENSOR || p->strategy == STRATEGY_TOKEN;
}

const struct granularity_ops qobs_granularity_llmc_weight = {
    .flatten = flatten_weight, .g_idx = true, .shared = weight_shared};
const struct granularity_ops qobs_granularity_llmc_activation = {.flatten = flatten_activation,
                                                                 .shared = activation_shared};
const struct granularity_ops qobs_granularity_llmc_attention = {.flatten = flatten_attention};

/* ---- September 2025 ---------------------------------------------------------------------------------------------- */

/* llm-compressor's Observer.get_qparams of September 2025 (observers/base.py). It knows no base name. Ranges keep the
 * reduced dimensions with size 1. Blocks and groups at an edge are short, and groups of g_idx have as many columns as
 * it names them. Strategy token has a range for each batch and token, as upstream intends (its min/max observer reduces
 * everything there). */

static int flatten(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    const int leading = params->strategy == STRATEGY_CHANNEL ? 1 : 2; /* dimensions that are kept */
    plan->keying = KEYING_DEFAULT;
    switch (params->strategy) {
    case STRATEGY_TENSOR:
        qobs_plan_add_global(plan);
        return QOBS_OK;
    case STRATEGY_CHANNEL:
    case STRATEGY_TOKEN:
        RETURN_IF_FAILED(need_dimensions(plan, params, leading, QOBS_MAX_NDIM, error));
        qobs_plan_add_kept_or_global(plan, (1u << leading) - 1);
        return QOBS_OK;
    case STRATEGY_GROUP:
    case STRATEGY_TENSOR_GROUP:
        RETURN_IF_FAILED(need_dimensions(plan, params, 2, 2, error));
        qobs_plan_add_dimension(plan, AXIS_QPARAM, 0);
        qobs_plan_add_groups(plan, 1, params->group_size);
        plan->keying = KEYING_GROUPS;
        return QOBS_OK;
    case STRATEGY_BLOCK:
        RETURN_IF_FAILED(need_dimensions(plan, params, 2, 2, error));
        qobs_plan_add_blocks(plan, params->block);
        plan->keying = KEYING_BLOCKS;
        return QOBS_OK;
    default:
        return qobs_invalid(error, "strategy: %s is none of version 2025-09",
                            qobs_word_text(qobs_strategies, params->strategy));
    }
}

static bool shared(const struct granularity_params *p, int64_t *rows, int64_t *columns)
{
    return p->strategy == STRATEGY_TOKEN || weight_shared(p, rows, columns);
}

const struct granularity_ops qobs_granularity_llmc_2025_09 = {.flatten = flatten, .g_idx = true, .shared = shared};
