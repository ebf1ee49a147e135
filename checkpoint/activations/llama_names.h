/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names of weights in llama.cpp for those of transformers: "model.layers.0.self_attn.q_proj" is blk.0.attn_q.weight. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct llama_name {
    char text[96];
    uint64_t matrix; /* number of the expert within the weight; else 0 */
};

/* Translates the name of a module; false: llama.cpp has no such weight. Its converter permutes rows of q_proj and
 * k_proj, but no columns, so that importance belongs to the same columns. Source: gguf-py/gguf/tensor_mapping.py. */
bool llama_name_of(const char *module, size_t length, struct llama_name *name);
