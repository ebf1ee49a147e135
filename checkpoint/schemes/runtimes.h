/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A table of the devices on which vLLM runs a group natively. x86 CPUs were tried (docs/devices.json). GPUs and Arm
 * CPUs were read in its source and in the names of its libraries: that for Arm has no cpu_gemm_wna16. */
#pragma once

#include "schemes/devices.h"
#include "schemes/quant_config.h"

#define RUNTIMES_VLLM "0.32" /* that the table was made of */

struct runtime_row {
    enum quant_format format;
    int min_bits, max_bits; /* of the weights */
    unsigned strategies;    /* bits of enum quant_strategy: of the weights */
    unsigned inputs;        /* bits of enum input_kind */
    bool asymmetric;        /* the row holds with zero points, too */
    unsigned linear;        /* bits of enum device */
    unsigned experts;       /* the same for experts; 0: vLLM has no method for them */
};

/* Returns the row of a finished group, or NULL if vLLM is not known to load it. */
const struct runtime_row *runtime_find(const struct quant_group *group);

/* Returns the devices on which vLLM looks up embeddings in the scheme of a group: integers, two to eight bits, in
 * pack-quantized (compressed_tensors_embedding.py). transformers has no such embeddings. */
unsigned runtime_embeddings(const struct quant_group *group);

/* Returns true if transformers 5.17 loads experts of a group, or with NULL those that stay as they are, from a matrix
 * for each expert. It puts the experts of a layer into one tensor, and takes those of the whole model for experts of
 * one group. */
bool runtime_stacks_experts(const struct quant_config *config, const struct quant_group *group);

/* Returns the version of compressed-tensors that transformers needs, or NULL for any that knows the format. */
const char *runtime_compressed_tensors(const struct quant_group *group);
