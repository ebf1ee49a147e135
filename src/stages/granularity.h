/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Granularity: the rule that says which elements of a tensor share a scale. Each rule is one `struct granularity_ops`;
 * its settings are plain values in `struct granularity_params`. A rule that differs by version of its upstream is a
 * second one. */
#pragma once

#include "base/error.h"
#include "base/tensor.h"
#include "qobs/plan.h"

enum base_name { BASE_WEIGHT, BASE_INPUT, BASE_OUTPUT, BASE_Q, BASE_K, BASE_V };

enum strategy {
    STRATEGY_NONE, /* to be inferred from group_size */
    STRATEGY_TENSOR,
    STRATEGY_CHANNEL,
    STRATEGY_GROUP,
    STRATEGY_TENSOR_GROUP,
    STRATEGY_BLOCK,
    STRATEGY_TOKEN,
    STRATEGY_ATTN_HEAD
};

static inline bool qobs_has_groups(enum strategy strategy)
{
    return strategy == STRATEGY_GROUP || strategy == STRATEGY_TENSOR_GROUP;
}

/* The names under which upstream keeps ranges: llm-compressor's tensor_id of September 2025. */
enum keying {
    KEYING_NONE,    /* all together */
    KEYING_DEFAULT, /* all together, as "default" */
    KEYING_GROUPS,  /* one group of all rows each: "default", "1", "2", ... */
    KEYING_BLOCKS   /* one block each: "block_0_0", ... */
};

/* Queries, keys and values of llm-compressor: the present releases and that of October 2025. */
enum attention_order {
    HEADS_FIRST,   /* (batch, heads, seq, head_dim) */
    SEQUENCE_FIRST /* (batch, seq, heads, head_dim) */
};

/* The classes of torchao.quantization.granularity. */
enum torchao_granularity {
    TORCHAO_PER_TENSOR,
    TORCHAO_PER_AXIS,  /* ch_axis is kept */
    TORCHAO_PER_GROUP, /* runs of group_size along the last dimension */
    TORCHAO_PER_ROW,   /* dim is reduced */
    TORCHAO_PER_TOKEN, /* the last dimension is reduced */
    TORCHAO_PER_BLOCK
};

struct granularity_params {
    const char *name; /* of the observer, for messages */
    enum base_name base_name;
    enum strategy strategy; /* never STRATEGY_NONE */
    int64_t group_size;     /* elements; -1: all of an axis (Quark) */
    int64_t block[2];       /* height, width in elements */
    int64_t block_size;     /* elements */
    int ch_axis;            /* negative: from the end */
    struct axes axes;       /* those that are not reduced */
    enum torchao_granularity torchao;
    int dim;                 /* negative: from the end */
    struct axes block_sizes; /* of the last dimensions, in elements */
    bool keepdim;            /* reduced dimensions stay, as 1 */
    bool whole;              /* all elements share a qparam */
    bool ragged;             /* the last group may be shorter than group_size */
    bool whole_blocks;       /* blocks are not padded */
    enum attention_order attention;
    bool scalar_scale;      /* one scale for the tensor has no dimensions */
    bool minus_one_is_none; /* -1 in g_idx: g_idx is not filled in; else it is a number like any other */
    bool named_groups;      /* a group has the columns g_idx names, else group_size columns in g_idx order */
    enum keying keying;     /* of a range over dimensions chosen by the caller */
};

struct granularity_ops {
    /* Adds the axes of the plan, or fails with a message that names what does not go together. */
    int (*flatten)(qobs_plan *plan, const struct granularity_params *params, qobs_error *error);
    bool g_idx; /* strategies group and tensor_group accept g_idx */
    /* Rows and columns of a matrix that share a qparam, which are 0 (all) before; false: these parameters have none.
     * NULL: no parameters have. */
    bool (*shared)(const struct granularity_params *params, int64_t *rows, int64_t *columns);
};

struct granularity {
    const struct granularity_ops *ops;
    struct granularity_params params;
};

extern const struct granularity_ops qobs_granularity_none; /* has no ranges: always fails */
extern const struct granularity_ops qobs_granularity_tensor;
extern const struct granularity qobs_whole_tensor;          /* that, for no preset */
extern const struct granularity_ops qobs_granularity_along; /* axes are kept; none or all: the tensor */
extern const struct granularity_ops qobs_granularity_llmc_weight, qobs_granularity_llmc_activation,
    qobs_granularity_llmc_attention;
extern const struct granularity_ops qobs_granularity_llmc_2025_09;
extern const struct granularity_ops qobs_granularity_torch_channel;
extern const struct granularity_ops qobs_granularity_torchao;
extern const struct granularity_ops qobs_granularity_quark_channel, qobs_granularity_quark_group;
extern const struct granularity_ops qobs_granularity_modelopt_axes, qobs_granularity_modelopt_block,
    qobs_granularity_modelopt_reduced;

extern const struct granularity_ops qobs_granularity_aiedge, qobs_granularity_nncf;

/* The words of settings and messages. */
extern const struct word qobs_base_names[], qobs_strategies[];
