/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Activations whose scales a checkpoint stores: static inputs and outputs of quantized layers, keys and values of
 * attention under a kv_cache_scheme. */
#pragma once

#include "model/weights.h"
#include "schemes/quant_config.h"

enum activation_kind {
    ACTIVATION_INPUT,
    ACTIVATION_OUTPUT,
    ACTIVATION_Q,
    ACTIVATION_K,
    ACTIVATION_V,
    ACTIVATION_KINDS
};

/* For each kind: base_name of its observer, which begins the names of its tensors, and suffix of its recordings. */
extern const char *const activation_bases[ACTIVATION_KINDS], *const activation_suffixes[ACTIVATION_KINDS];

struct activation_need {
    size_t weight;      /* whose shard gets the tensors, and whose dtype the scales have */
    const char *module; /* <module> in the names */
    size_t length;
    enum activation_kind kind;
    const struct quant_args *args;
    int64_t features; /* size of the last dimension; -1: any */
};

struct activation_needs {
    struct activation_need *items; /* in the order of the weights */
    size_t count;
};

/* Lists the needs of the weights that choose_weights has taken. Returns a status. */
int activation_needs_list(struct activation_needs *needs, const struct weights *weights,
                          const struct quant_config *config, struct fail *f);
void activation_needs_free(struct activation_needs *needs);

/* Returns true if the weight is the first of those that mark its parent as attention
 * (compressed_tensors/quantization/lifecycle/initialize.py). *length is then the length of the parent's name. */
bool marks_attention(const struct weights *weights, const struct weight *w, size_t *length);
