/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torch.ao's and torchao's observers. In torch.ao per tensor reduces everything to a 0-dimensional range, and per
 * channel everything but ch_axis. */
#include "plan/make_plan.h"

static int flatten_tensor(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    (void)error;
    qobs_plan_add_global(plan);
    if (params->scalar_scale)
        plan->scale = (struct shape){.ndim = 0};
    return QOBS_OK;
}

static int flatten_channel(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    if (plan->value.ndim < 2)
        return qobs_invalid(error, "value: has %d dimensions, %s needs at least 2", plan->value.ndim, params->name);
    const int axis = qobs_plan_find_axis(plan, params->ch_axis, "ch_axis", error);
    if (axis < 0)
        return QOBS_ERROR_INVALID_ARGUMENT;
    qobs_plan_add_dimension(plan, AXIS_QPARAM, axis);
    for (int i = 0; i < plan->value.ndim; i++)
        if (i != axis)
            qobs_plan_add_dimension(plan, AXIS_GROUP, i);
    return QOBS_OK;
}

static bool all_shared(const struct granularity_params *p, int64_t *rows, int64_t *columns)
{
    (void)p;
    *rows = *columns = 0;
    return true;
}

static bool row_shared(const struct granularity_params *p, int64_t *rows, int64_t *columns)
{
    *columns = 0;
    *rows = 1;
    return p->ch_axis == 0 || p->ch_axis == -2;
}

const struct granularity qobs_whole_tensor = {.ops = &qobs_granularity_tensor, .params = {.strategy = STRATEGY_TENSOR}};
const struct granularity_ops qobs_granularity_tensor = {.flatten = flatten_tensor, .shared = all_shared};
const struct granularity_ops qobs_granularity_torch_channel = {.flatten = flatten_channel, .shared = row_shared};

/* ---- torchao ----------------------------------------------------------------------------------------------------- */

/* torchao's granularities: each is a block of the tensor (get_block_size in quantization/utils.py). Dimensions of which
 * a block is a part are split, dimensions that lie in one block are reduced (_get_reduction_params). */

static int block_of_axis(const qobs_plan *plan, const struct granularity_params *params, int64_t *block,
                         qobs_error *error)
{
    const bool row = params->torchao == TORCHAO_PER_ROW;
    const int axis = row ? qobs_plan_find_axis(plan, params->dim, "dim", error)
                         : qobs_plan_find_axis(plan, params->ch_axis, "axis", error);
    if (axis < 0)
        return QOBS_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < plan->value.ndim; i++)
        block[i] = (i == axis) == row ? plan->value.shape[i] : 1;
    return QOBS_OK;
}

/* Blocks of fewer dimensions than the value are those of its last ones. */
static int block_as_set(const qobs_plan *plan, const struct granularity_params *params, int64_t *block,
                        qobs_error *error)
{
    const int ndim = plan->value.ndim, count = params->block_sizes.count;
    if (count > ndim)
        return qobs_invalid(error, "block_size: has %d dimensions, value has %d", count, ndim);
    for (int i = 0; i < ndim; i++) {
        block[i] = i < ndim - count ? 1 : params->block_sizes.axis[i - (ndim - count)];
        RETURN_IF_FAILED(qobs_plan_check_divides(plan, "block_size: ", block[i], i, error));
    }
    return QOBS_OK;
}

static int block_of(const qobs_plan *plan, const struct granularity_params *params, int64_t block[QOBS_MAX_NDIM],
                    qobs_error *error)
{
    const struct view *v = &plan->value;
    const int last = v->ndim - 1;
    if (params->torchao == TORCHAO_PER_AXIS || params->torchao == TORCHAO_PER_ROW)
        return block_of_axis(plan, params, block, error);
    if (params->torchao == TORCHAO_PER_BLOCK)
        return block_as_set(plan, params, block, error);
    for (int i = 0; i < v->ndim; i++)
        block[i] = i == last || params->torchao == TORCHAO_PER_TENSOR ? v->shape[i] : 1;
    if (params->torchao != TORCHAO_PER_GROUP)
        return QOBS_OK;
    RETURN_IF_FAILED(qobs_plan_check_divides(plan, "group_size: ", params->group_size, last, error));
    block[last] = params->group_size;
    return QOBS_OK;
}

/* If no dimension is reduced, upstream's list of them is empty, and to torch that means all. */
static bool reduces_none(const qobs_plan *plan, const int64_t *block)
{
    for (int i = 0; i < plan->value.ndim; i++)
        if (block[i] != 1)
            return false;
    return true;
}

static int append(struct shape *shape, int64_t extent, qobs_error *error)
{
    if (shape->ndim == QOBS_MAX_NDIM)
        return qobs_invalid(error, "value: its scale would have more than %d dimensions", QOBS_MAX_NDIM);
    shape->extent[shape->ndim++] = extent;
    return QOBS_OK;
}

static int set_shape(qobs_plan *plan, const int64_t *block, bool all, bool keepdim, qobs_error *error)
{
    struct shape shape = {.ndim = 0};
    for (int i = 0; i < plan->value.ndim; i++) {
        const int64_t length = plan->value.shape[i];
        const bool split = block[i] != length && block[i] > 1, reduced = all || block[i] != 1;
        if (split || !reduced)
            RETURN_IF_FAILED(append(&shape, split ? length / block[i] : length, error));
        if (keepdim && reduced)
            RETURN_IF_FAILED(append(&shape, 1, error));
    }
    plan->range = plan->scale = shape;
    return QOBS_OK;
}

static int flatten(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    const struct view *v = &plan->value;
    int64_t block[QOBS_MAX_NDIM];
    int kept = 0;
    RETURN_IF_FAILED(block_of(plan, params, block, error));
    const bool all = reduces_none(plan, block);
    for (int i = 0; i < v->ndim && !all; i++)
        if (block[i] != v->shape[i] || block[i] == 1) {
            qobs_plan_add_axis(plan, AXIS_QPARAM, v->shape[i] / block[i], block[i] * v->strides[i]);
            kept++;
        }
    if (kept == 0)
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
    if (plan->axes + v->ndim > MAX_AXES)
        return qobs_invalid(error, "value: has %d dimensions, too many for blocks that split %d of them", v->ndim,
                            kept);
    for (int i = 0; i < v->ndim; i++)
        if (all || block[i] != 1)
            qobs_plan_add_axis(plan, AXIS_GROUP, all ? v->shape[i] : block[i], v->strides[i]);
    return set_shape(plan, block, all, params->keepdim, error);
}

const struct granularity_ops qobs_granularity_torchao = {.flatten = flatten};
