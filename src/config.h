/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Settings, parsed and checked in one place. */
#ifndef QOBS_CONFIG_H
#define QOBS_CONFIG_H

#include "preset.h"
#include "runtime.h"

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

enum nonfinite_mode { NONFINITE_REFUSE, NONFINITE_IGNORE, NONFINITE_PROPAGATE };

enum type { TYPE_INT, TYPE_FLOAT };

enum scale_dtype { SCALE_NATIVE, SCALE_F32, SCALE_BF16, SCALE_F16, SCALE_E4M3, SCALE_U8 };

enum version { VERSION_CURRENT, VERSION_2025_10 };

enum torch_dtype { TORCH_QUINT8, TORCH_QINT8, TORCH_QINT32, TORCH_QUINT4X2, TORCH_UINT8, TORCH_INT8, TORCH_UINT16, TORCH_INT16, TORCH_INT32 };

enum torch_qscheme {
    TORCH_QSCHEME_NONE, /* affine, per tensor or per channel as the preset is */
    TORCH_PER_TENSOR_AFFINE,
    TORCH_PER_TENSOR_SYMMETRIC,
    TORCH_PER_CHANNEL_AFFINE,
    TORCH_PER_CHANNEL_SYMMETRIC,
    TORCH_PER_CHANNEL_AFFINE_FLOAT_QPARAMS
};

/* Every setting of every preset; a preset's family says which of them it has. Enumerations are stored as int so that one
 * table can describe all fields. */
struct qobs_config {
    const struct preset *preset;
    struct runtime runtime;

    int base_name;
    int nonfinite;
    double averaging_constant;

    /* llm-compressor and compressed-tensors */
    int num_bits;
    int type;
    bool symmetric;
    int strategy; /* resolved by qobs_config_strategy */
    bool has_group_size;
    int64_t group_size;
    bool has_block;
    int64_t block[2]; /* height, width */
    int dynamic;
    int scale_dtype; /* a scale_dtype */
    int zp_dtype;    /* a qobs_dtype, or 0: follows type and num_bits */
    int version;
    bool ragged;

    /* torch */
    int dtype;
    int qscheme;
    bool reduce_range;
    bool has_quant_min, has_quant_max;
    int64_t quant_min, quant_max;
    double eps;
    bool is_dynamic;
    int ch_axis;
};

/* The strategy given, or the one group_size implies. */
enum strategy qobs_config_strategy(const qobs_config *config);

/* MXFP4 and MXFP8, as compressed-tensors tells them: 4 or 8-bit floats, groups of 32, scales stored as exponents. */
bool qobs_config_is_mx(const qobs_config *config);

/* The names of an enumeration's values as messages and `set` use them. */
const char *qobs_base_name_text(int base_name);
const char *qobs_strategy_text(int strategy);
const char *qobs_qscheme_text(int qscheme);

#endif
