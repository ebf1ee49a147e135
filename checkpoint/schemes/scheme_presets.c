/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The preset schemes of compressed-tensors 0.19 and 0.20 (compressed_tensors/quantization/quant_scheme.py), and
 * W8A8_STATIC, which have no names there: _is_static_tensor_w8a8 of vLLM 0.32 takes them. */
#include "schemes/quant_config.h"

#include <strings.h>

#define GROUPS_OF_128 .strategy = QUANT_GROUP, .group_size = 128
#define INT(bits, ...)                                                                                                 \
    {                                                                                                                  \
        .num_bits = (bits), .symmetric = true, __VA_ARGS__                                                             \
    }
#define FLOAT(bits, ...)                                                                                               \
    {                                                                                                                  \
        .num_bits = (bits), .type = QUANT_FLOAT, .symmetric = true, __VA_ARGS__                                        \
    }
#define NV .strategy = QUANT_TENSOR_GROUP, .group_size = 16, .scale_dtype = FILE_F8_E4M3
#define MX .strategy = QUANT_GROUP, .group_size = 32, .scale_dtype = FILE_U8

static const struct quant_args w2 = INT(2, GROUPS_OF_128), w3 = INT(3, GROUPS_OF_128), w4 = INT(4, GROUPS_OF_128),
                               w5 = INT(5, GROUPS_OF_128), w6 = INT(6, GROUPS_OF_128), w7 = INT(7, GROUPS_OF_128),
                               w8 = INT(8, GROUPS_OF_128), w4_asym = {.num_bits = 4, GROUPS_OF_128};
static const struct quant_args int8 = INT(8, .strategy = QUANT_CHANNEL);
static const struct quant_args a4 = INT(4, .strategy = QUANT_TOKEN, .dynamic = QUANT_DYNAMIC);
static const struct quant_args a8 = INT(8, .strategy = QUANT_TOKEN, .dynamic = QUANT_DYNAMIC);
static const struct quant_args a8_tensor = INT(8, .strategy = QUANT_TENSOR);
static const struct quant_args a8_tensor_asym = {.num_bits = 8, .strategy = QUANT_TENSOR};
static const struct quant_args fp8_tensor = FLOAT(8, .strategy = QUANT_TENSOR);
static const struct quant_args fp8_channel = FLOAT(8, .strategy = QUANT_CHANNEL);
static const struct quant_args fp8_token = FLOAT(8, .strategy = QUANT_TOKEN, .dynamic = QUANT_DYNAMIC);
static const struct quant_args fp8_block = FLOAT(8, .strategy = QUANT_BLOCK, .block_structure = {128, 128});
static const struct quant_args fp8_group = FLOAT(8, GROUPS_OF_128, .dynamic = QUANT_DYNAMIC);
static const struct quant_args nvfp4 = FLOAT(4, NV), nvfp4_local = FLOAT(4, NV, .dynamic = QUANT_LOCAL);
static const struct quant_args mxfp4 = FLOAT(4, MX), mxfp4_dynamic = FLOAT(4, MX, .dynamic = QUANT_DYNAMIC);
static const struct quant_args mxfp6 = FLOAT(6, MX);
static const struct quant_args mxfp8 = FLOAT(8, MX), mxfp8_dynamic = FLOAT(8, MX, .dynamic = QUANT_DYNAMIC);

static const struct scheme_preset presets[] = {
    {"W4A16", &w4, NULL, "int4, groups of 128"},
    {"W4A16_ASYM", &w4_asym, NULL, "int4 with zero points, groups of 128"},
    {"W8A16", &w8, NULL, "int8, groups of 128"},
    {"W8A8", &int8, &a8, "int8, one scale for each channel; activations int8, dynamic"},
    {"INT8", &int8, &a8, "the same as W8A8"},
    {"W8A8_STATIC", &int8, &a8_tensor,
     "int8, one scale for each channel; activations int8, one for each tensor, static"},
    {"W8A8_STATIC_ASYM", &int8, &a8_tensor_asym, "the same; activations with zero points"},
    {"FP8", &fp8_tensor, &fp8_tensor, "e4m3, one scale for each tensor; activations the same, static"},
    {"FP8_DYNAMIC", &fp8_channel, &fp8_token, "e4m3, one scale for each channel; activations e4m3, dynamic"},
    {"FP8_BLOCK", &fp8_block, &fp8_group, "e4m3, blocks of 128 x 128; activations e4m3, dynamic"},
    {"NVFP4A16", &nvfp4, NULL, "e2m1, groups of 16 with e4m3 scales under a global scale"},
    {"NVFP4", &nvfp4, &nvfp4_local, "the same; activations e2m1 under a static global scale"},
    {"MXFP4A16", &mxfp4, NULL, "e2m1, groups of 32 with power-of-two scales"},
    {"MXFP4", &mxfp4, &mxfp4_dynamic, "the same; activations too, dynamic"},
    {"MXFP4XFP8", &mxfp4, &fp8_group, "the same; activations e4m3, groups of 128, dynamic"},
    {"MXFP6A16", &mxfp6, NULL, "e2m3, groups of 32 with power-of-two scales"},
    {"MXFP6A8", &mxfp6, &mxfp8_dynamic, "the same; activations e4m3, groups of 32, dynamic"},
    {"MXFP8A16", &mxfp8, NULL, "e4m3, groups of 32 with power-of-two scales"},
    {"MXFP8", &mxfp8, &mxfp8_dynamic, "the same; activations too, dynamic"},
    {"W4AFP8", &w4, &fp8_token, "int4, groups of 128; activations e4m3, dynamic"},
    {"W2A16", &w2, NULL, "int2, groups of 128"},
    {"W2A8", &w2, &a8, "int2, groups of 128; activations int8, dynamic"},
    {"W2A4", &w2, &a4, "int2, groups of 128; activations int4, dynamic"},
    {"W3A16", &w3, NULL, "int3, groups of 128"},
    {"W3A8", &w3, &a8, "int3, groups of 128; activations int8, dynamic"},
    {"W3A4", &w3, &a4, "int3, groups of 128; activations int4, dynamic"},
    {"W4A8", &w4, &a8, "int4, groups of 128; activations int8, dynamic"},
    {"W4A4", &w4, &a4, "int4, groups of 128; activations int4, dynamic"},
    {"W5A16", &w5, NULL, "int5, groups of 128"},
    {"W5A8", &w5, &a8, "int5, groups of 128; activations int8, dynamic"},
    {"W6A16", &w6, NULL, "int6, groups of 128"},
    {"W6A8", &w6, &a8, "int6, groups of 128; activations int8, dynamic"},
    {"W7A16", &w7, NULL, "int7, groups of 128"},
    {"W7A8", &w7, &a8, "int7, groups of 128; activations int8, dynamic"},
};

const struct scheme_preset *scheme_preset_at(size_t index)
{
    return index < sizeof presets / sizeof *presets ? &presets[index] : NULL;
}

const struct scheme_preset *scheme_preset_find(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcasecmp(name, presets[i].name) == 0)
            return &presets[i];
    return NULL;
}
