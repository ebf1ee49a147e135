/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Tensors that hold several experts, or projections of attention. They become one matrix each, under the names that
 * runtimes load, or stay as they are. */
#pragma once

#include "model/architecture.h"
#include "model/weights.h"

enum expert_kind {
    EXPERTS_NONE,      /* no tensor of experts, or one of a single expert */
    EXPERTS_SPLIT,     /* becomes matrices <experts>.<e>.gate_proj.weight and similar */
    EXPERTS_LEFT,      /* stays whole */
    EXPERTS_ATTENTION, /* no experts: becomes <parent>.q_proj.weight, k_proj and v_proj */
    EXPERTS_MXFP4,     /* ..._blocks [E, rows, groups, 16] of gpt-oss: becomes [E, columns, rows] in BF16 */
    EXPERTS_SCALES     /* ..._scales of those, which disappear */
};

/* How a tensor of experts is listed. */
struct expert_listing {
    enum expert_kind kind;
    enum weight_experts why; /* of EXPERTS_LEFT: EXPERTS_WHOLE, EXPERTS_STACKED or EXPERTS_UNCLEAR */
    bool transposed;         /* [E, in, out], as Llama 4 has them; else [E, out, in] */
    size_t word;             /* where the name of its projections begins: gate_up_proj, down_proj, ... */
    size_t size;             /* bytes of that name */
    bool both;               /* gate_proj and up_proj, one after the other */
    bool down;               /* down_proj under another name */
    bool nested;             /* the layer's module is <parent>.experts, not <parent> */
};

/* Says what a tensor is. split: experts that vLLM alone loads one by one are split. llm-compressor knows gate_up_proj
 * and down_proj alone, [E, out, in]. */
struct expert_listing experts_listing(const struct model *model, const struct architectures *found,
                                      const struct model_tensor *source, qobs_compat compat, bool split);

/* Adds the weights of a tensor of experts. */
int experts_list(struct weights *list, const struct model *model, const struct model_tensor *source,
                 const struct expert_listing *listing, struct fail *f);

/* Finds the number in "<layer>.<number>.<projection>" if the last component of the layer ends in "experts". Returns the
 * length of the layer's name, 0: it is no name of one expert. *number is the length up to the end of the number. */
size_t experts_layer(const char *module, size_t length, size_t *number);

/* Fails if a layer of experts is quantized in part or with two groups, which no runtime loads. */
int experts_check_layers(const struct weights *weights, struct fail *f);

/* Makes tensors whose experts all stay unquantized whole again, under their own names, but MODULE_SINGLE_EXPERTS. */
int experts_join(struct weights *weights, const struct architectures *found, struct fail *f);

/* Writes name `index` that a loader may give to the experts of a tensor that stays whole, such as
 * "model.layers.0.mlp.experts.0.gate_proj", and the pattern for `ignore` that covers it in every layer, or in this one.
 * Returns false after the last one. */
struct expert_entry {
    char name[1024], everywhere[1024], here[1024];
};
bool experts_ignored_as(const struct weight *w, size_t index, struct expert_entry *entry);
