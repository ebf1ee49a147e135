/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A table of the runtimes that run a group natively: tried on CPUs, read in the source of vLLM 0.32 for GPUs. */
#pragma once

#include "schemes/quant_config.h"

struct runtime_row {
    enum quant_format format;
    int min_bits, max_bits; /* of the weights */
    unsigned strategies;    /* bits of enum quant_strategy: of the weights */
    unsigned inputs;        /* bits of enum input_kind */
    const char *vllm;       /* "on CPUs and GPUs" */
    const char *experts;    /* the same for experts; NULL: vLLM has no method for them */
};

/* Returns the row of a finished group, or NULL if vLLM is not known to load it. */
const struct runtime_row *runtime_find(const struct quant_group *group);

/* Returns true if transformers 5.17 loads experts of a group, or with NULL those that stay as they are, from a matrix
 * for each expert. It puts the experts of a layer into one tensor, and takes those of the whole model for experts of
 * one group. */
bool runtime_stacks_experts(const struct quant_config *config, const struct quant_group *group);

/* Returns the version of compressed-tensors that transformers needs, or NULL for any that knows the format. */
const char *runtime_compressed_tensors(const struct quant_group *group);
