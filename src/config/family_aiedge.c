/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ai-edge-quantizer: settings (fields of qtyping.TensorQuantizationConfig) and parameters. */
#include <math.h>

#include "config/families.h"

enum aiedge_granularity { TENSORWISE, CHANNELWISE, BLOCKWISE_32, BLOCKWISE_64, BLOCKWISE_128, BLOCKWISE_256 };
static const struct word granularities[] = {{"TENSORWISE", TENSORWISE},
                                            {"CHANNELWISE", CHANNELWISE},
                                            {"BLOCKWISE_32", BLOCKWISE_32},
                                            {"BLOCKWISE_64", BLOCKWISE_64},
                                            {"BLOCKWISE_128", BLOCKWISE_128},
                                            {"BLOCKWISE_256", BLOCKWISE_256},
                                            {0}};

static bool has_axis(const struct preset *preset) { return preset->range == &qobs_range_octav; }

static const struct setting settings[] = {
    BASE_NAME,
    NONFINITE(EVERY, qobs_nonfinite_modes),
    NUMBER("num_bits", EVERY, KIND_INTEGER, aiedge.num_bits, 2, 16, "bits of the quantized numbers"),
    WORD("granularity", EVERY, aiedge.granularity, granularities, "elements that share a scale"),
    NUMBER("quantized_dimension", has_axis, KIND_INTEGER, aiedge.quantized_dimension, LEAST_AXIS, MOST_AXIS,
           "CHANNELWISE: the dimension that is kept; negative: from the end"),
};

static void set_defaults(struct qobs_config *config)
{
    config->aiedge.num_bits = 8;
    config->aiedge.granularity = CHANNELWISE;
}

static int64_t block_size(const qobs_config *config)
{
    const int g = config->aiedge.granularity;
    return g >= BLOCKWISE_32 ? (int64_t)32 << (g - BLOCKWISE_32) : 0;
}

static void granularity(const qobs_config *config, struct granularity *g)
{
    g->params.ch_axis = config->aiedge.quantized_dimension;
    g->params.block_size = block_size(config);
    g->params.whole = config->aiedge.granularity == TENSORWISE;
}

/* Its weights are matrices of rows. */
static bool is_oscar(const qobs_config *config) { return !has_axis(config->preset); }

/* Weights of LiteRT are float32. OSCAR's bounds are double. */
static void reduction(const qobs_config *config, struct reduction *r)
{
    r->in_f32 = !is_oscar(config);
    r->in_f64 = is_oscar(config);
}

enum { MOST_FLOAT16_SCALE = 65280 }; /* with the mantissa of bfloat16 */

static void range(const qobs_config *config, struct range_rule *rule)
{
    const int bits = config->aiedge.num_bits;
    rule->params.importance = is_oscar(config);
    if (is_oscar(config)) {
        rule->params.oscar.levels = ldexp(1, bits - 1) - 1;
        return;
    }
    rule->params.octav = (struct octav_params){
        .noise = (float)(ldexp(1, -2 * bits) / 3),
        .dimension = config->aiedge.quantized_dimension,
        .block = block_size(config),
        .whole = config->aiedge.granularity == TENSORWISE,
        .least = 1e-9F,
        .most = block_size(config) > 0 ? (float)MOST_FLOAT16_SCALE * (float)((1 << bits) - 1) : INFINITY,
        .iterations = 10,
    };
}

static const struct formula_ops *formula(const qobs_config *config, struct formula_params *p)
{
    p->quant_min = -ldexp(1, config->aiedge.num_bits - 1);
    p->quant_max = -p->quant_min - 1;
    p->aiedge.blocks = block_size(config) > 0;
    p->aiedge.zero_point_dtype = config->aiedge.num_bits <= 8 ? QOBS_I8 : QOBS_I16;
    return &qobs_formula_aiedge;
}

const struct family_ops qobs_family_aiedge = {
    SETTINGS_OF(settings), .set_defaults = set_defaults, .granularity = granularity, .reduction = reduction,
    .range = range,        .formula = formula,
};
