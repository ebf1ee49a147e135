/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* See _get_scheme_from_parts, get_moe_method and the kernels of each platform in vLLM 0.32. */
#include "schemes/runtimes.h"

#include <string.h>

enum input_kind {
    NO_INPUTS = 1,
    INT_TOKENS = 2,
    FP8_TOKENS = 4,
    FP8_TENSOR = 8,
    FP8_GROUPS = 16,
    FP4_INPUTS = 32,
    INT_TENSOR = 64 /* also with zero points */
};

#define BY_GROUP (1u << QUANT_GROUP)
#define BY_ROW (1u << QUANT_GROUP | 1u << QUANT_CHANNEL)
#define BY_MATRIX (1u << QUANT_CHANNEL | 1u << QUANT_TENSOR)
#define GPU DEVICE_GPU
#define SM90 DEVICE_SM90
#define GPU_AVX512 (DEVICE_GPU | DEVICES_AVX512)
#define GPU_AMX (DEVICE_GPU | DEVICE_AMX)
#define ALL (DEVICE_GPU | DEVICES_CPU)

static const struct runtime_row rows[] = {
    {QUANT_PACK, 4, 4, BY_ROW, NO_INPUTS, false, GPU_AVX512, GPU_AMX},
    {QUANT_PACK, 4, 4, BY_ROW, NO_INPUTS, true, GPU_AVX512, GPU},
    {QUANT_PACK, 2, 8, BY_ROW, NO_INPUTS, true, GPU, GPU},
    {QUANT_PACK, 4, 4, BY_ROW, INT_TOKENS, true, GPU_AVX512, 0},
    {QUANT_PACK, 2, 8, BY_ROW, INT_TOKENS, true, GPU, 0},
    {QUANT_PACK, 4, 4, BY_GROUP, FP8_TOKENS, false, SM90, SM90},
    {QUANT_INT_QUANTIZED, 8, 8, BY_MATRIX, INT_TOKENS, false, ALL, GPU_AMX | DEVICE_ARM},
    {QUANT_INT_QUANTIZED, 8, 8, BY_MATRIX, INT_TENSOR, false, ALL, 0},
    {QUANT_INT_QUANTIZED, 4, 4, BY_ROW, INT_TOKENS, false, ALL & ~DEVICE_AMX, DEVICE_ARM}, /* with AMX: SIGILL */
    {QUANT_FLOAT_QUANTIZED, 8, 8, BY_MATRIX, FP8_TOKENS, false, ALL, GPU},
    {QUANT_FLOAT_QUANTIZED, 8, 8, BY_MATRIX, FP8_TENSOR, false, GPU, GPU},
    {QUANT_FLOAT_QUANTIZED, 8, 8, 1u << QUANT_BLOCK, FP8_GROUPS, false, GPU_AMX, GPU_AMX},
    {QUANT_NAIVE, 8, 8, BY_MATRIX | 1u << QUANT_BLOCK, NO_INPUTS, false, GPU, 0},
    {QUANT_NVFP4_PACK, 4, 4, 1u << QUANT_TENSOR_GROUP, NO_INPUTS | FP4_INPUTS, false, GPU, GPU},
    {QUANT_MXFP4_PACK, 4, 4, BY_GROUP, NO_INPUTS, false, GPU, GPU_AMX},
    {QUANT_MXFP4_PACK, 4, 4, BY_GROUP, FP4_INPUTS | FP8_TOKENS | FP8_GROUPS, false, GPU, GPU},
    {QUANT_AWQ, 4, 4, BY_ROW, NO_INPUTS, true, GPU_AVX512, GPU},
    {QUANT_GPTQ, 4, 4, BY_ROW, NO_INPUTS, false, GPU_AVX512, GPU},
    {QUANT_GPTQ, 8, 8, BY_ROW, NO_INPUTS, false, GPU, GPU},
    {QUANT_GPTQ_V2, 4, 4, BY_ROW, NO_INPUTS, false, GPU_AVX512, GPU},
    {QUANT_GPTQ_V2, 8, 8, BY_ROW, NO_INPUTS, false, GPU, GPU},
    {QUANT_MODELOPT_FP8, 8, 8, 1u << QUANT_TENSOR, FP8_TENSOR, false, GPU, GPU},
    {QUANT_MODELOPT_FP8, 8, 8, 1u << QUANT_CHANNEL, FP8_TOKENS, false, GPU, 0},
    {QUANT_MODELOPT_FP8, 8, 8, 1u << QUANT_BLOCK, FP8_GROUPS, false, GPU, 0},
    {QUANT_BLOCK_FP8, 8, 8, 1u << QUANT_BLOCK, FP8_GROUPS, false, GPU_AMX, GPU},
    {QUANT_MODELOPT_NVFP4, 4, 4, 1u << QUANT_TENSOR_GROUP, NO_INPUTS | FP4_INPUTS, false, GPU, GPU},
    {QUANT_MXFP8, 8, 8, BY_GROUP, NO_INPUTS | FP8_GROUPS, false, GPU, GPU},
};

/* Returns 0 for inputs of no row. */
static unsigned input_kind(const struct quant_group *g)
{
    const struct quant_args *a = &g->inputs;
    const bool dynamic = a->dynamic != QUANT_STATIC, is_float = a->type == QUANT_FLOAT;
    if (g->has_outputs || !g->has_inputs)
        return g->has_outputs ? 0 : NO_INPUTS;
    if (is_float && a->num_bits == quant_format_row(QUANT_MXFP4_PACK)->code.bits)
        return FP4_INPUTS;
    if (a->strategy == QUANT_TOKEN && dynamic && a->symmetric)
        return is_float ? FP8_TOKENS : INT_TOKENS;
    if (a->strategy == QUANT_TENSOR && !dynamic && (is_float || a->num_bits == 8))
        return is_float ? FP8_TENSOR : INT_TENSOR;
    return is_float && a->strategy == QUANT_GROUP && dynamic ? FP8_GROUPS : 0;
}

const struct runtime_row *runtime_find(const struct quant_group *group)
{
    const struct quant_args *w = &group->weights;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].format == group->stored && w->num_bits >= rows[i].min_bits && w->num_bits <= rows[i].max_bits &&
            (rows[i].strategies & 1u << w->strategy) && (rows[i].inputs & input_kind(group)) &&
            (w->symmetric || rows[i].asymmetric))
            return &rows[i];
    return NULL;
}

unsigned runtime_embeddings(const struct quant_group *group)
{
    return group->stored == QUANT_PACK && group->weights.symmetric && input_kind(group) == NO_INPUTS ? DEVICE_GPU : 0;
}

const char *runtime_compressed_tensors(const struct quant_group *group)
{
    const int bits = group->weights.num_bits;
    if (group->stored == QUANT_PACK && 32 % bits != 0)
        return "0.18"; /* earlier ones leave gaps in the words */
    return quant_format_row(group->stored)->since;
}

/* Returns true if a target of the group is a pattern with "experts", or with `pattern` false a name. */
static bool has_target(const struct quant_group *group, bool pattern)
{
    for (size_t i = 0; i < group->target_count; i++) {
        const bool is_pattern = strncmp(group->targets[i], "re:", 3) == 0;
        if (pattern ? is_pattern && strstr(group->targets[i], "experts") : !is_pattern)
            return true;
    }
    return false;
}

/* Returns the group of get_experts_scheme in transformers' integrations/compressed_tensors.py. */
static const struct quant_group *group_of_experts(const struct quant_config *config)
{
    for (int pattern = 1; pattern >= 0; pattern--)
        for (size_t i = 0; i < config->group_count; i++)
            if (has_target(&config->groups[i], pattern))
                return &config->groups[i];
    return config->groups;
}

/* Without FP8 it looks for packed codes alone, and reads neither zero points nor global scales. */
bool runtime_stacks_experts(const struct quant_config *config, const struct quant_group *group)
{
    const struct quant_group *read = group_of_experts(config);
    const struct quant_args *w = &read->weights;
    const bool fp8 = w->type == QUANT_FLOAT && w->num_bits == 8;
    if (!group)
        return fp8;
    return quant_groups_alike(group, read) &&
           (fp8 ? w->strategy == QUANT_TENSOR || w->strategy == QUANT_CHANNEL
                : w->symmetric && (read->stored == QUANT_PACK || read->stored == QUANT_MXFP4_PACK));
}
