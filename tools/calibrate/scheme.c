/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The schemes, as a table. */
#include "scheme.h"

#include <strings.h>

/* see compressed_tensors/quantization/quant_scheme.py */
#define INT8 "num_bits=8 strategy=channel"
#define INT8_TOKEN "num_bits=8 strategy=token dynamic=true"
#define INT4 "num_bits=4 strategy=group group_size=128"
#define E4M3 "type=float num_bits=8 "
#define NVFP4 "type=float num_bits=4 strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn"
#define MX "type=float strategy=group group_size=32 scale_dtype=uint8 "
static const struct scheme schemes[] = {
    {"W8A8", INT8, INT8_TOKEN, "int8, one scale for each channel; activations int8, dynamic"},
    {"INT8", INT8, INT8_TOKEN, "the same as W8A8"},
    {"W8A16", "num_bits=8 strategy=group group_size=128", NULL, "int8, groups of 128"},
    {"W4A16", INT4, NULL, "int4, groups of 128"},
    {"W4A16_ASYM", INT4 " symmetric=false", NULL, "int4 with zero points, groups of 128"},
    {"W4A8", INT4, INT8_TOKEN, "int4, groups of 128; activations int8, dynamic"},
    {"FP8", E4M3 "strategy=tensor", E4M3 "strategy=tensor",
     "e4m3, one scale for each tensor; activations the same, static"},
    {"FP8_DYNAMIC", E4M3 "strategy=channel", E4M3 "strategy=token dynamic=true",
     "e4m3, one scale for each channel; activations e4m3, dynamic"},
    {"FP8_BLOCK", E4M3 "strategy=block block_structure=[128,128]", E4M3 "strategy=group group_size=128 dynamic=true",
     "e4m3, blocks of 128 x 128; activations e4m3, dynamic"},
    {"NVFP4", NVFP4, NVFP4 " dynamic=local",
     "e2m1, groups of 16 with e4m3 scales under a global scale; activations the same, dynamic under a static global "
     "scale"},
    {"NVFP4A16", NVFP4, NULL, "e2m1, groups of 16 with e4m3 scales under a global scale"},
    {"MXFP4", MX "num_bits=4", MX "num_bits=4 dynamic=true",
     "e2m1, groups of 32 with power-of-two scales; activations the same, dynamic"},
    {"MXFP4A16", MX "num_bits=4", NULL, "e2m1, groups of 32 with power-of-two scales"},
    {"MXFP8", MX "num_bits=8", MX "num_bits=8 dynamic=true",
     "e4m3, groups of 32 with power-of-two scales; activations the same, dynamic"},
    {"MXFP8A16", MX "num_bits=8", NULL, "e4m3, groups of 32 with power-of-two scales"},
};

enum { COUNT = sizeof schemes / sizeof *schemes };

const struct scheme *scheme_at(int index) { return index >= 0 && index < COUNT ? &schemes[index] : NULL; }

const struct scheme *scheme_find(const char *name)
{
    for (int i = 0; i < COUNT; i++)
        if (strcasecmp(schemes[i].name, name) == 0)
            return &schemes[i];
    return NULL;
}
