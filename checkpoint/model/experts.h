/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Experts that lie in one tensor become one matrix, or one bias, each. */
#pragma once

#include "model/weights.h"

enum expert_kind {
    EXPERTS_NONE,   /* no tensor of experts */
    EXPERTS_PLAIN,  /* ...gate_up_proj or ...down_proj [E, rows, columns] */
    EXPERTS_MXFP4,  /* ..._blocks [E, rows, groups, 16] with ..._scales [E, rows, groups], as gpt-oss has them */
    EXPERTS_SCALES, /* the scales of those, which disappear */
    EXPERTS_BIAS    /* ..._bias [E, rows] of gpt-oss */
};

/* Says what a tensor is. llm-compressor knows plain experts alone. */
enum expert_kind experts_kind(const struct model *model, const struct model_tensor *source, qobs_compat compat);

/* Adds the matrices or biases of all experts: <experts>.<e>.gate_proj.weight and similar. The model's configuration
 * says how they lie; under QOBS_COMPAT_LLM_COMPRESSOR gate_proj and up_proj are halves of dimension 1. */
int experts_list(struct weight_list *list, const struct model *model, const struct model_tensor *source,
                 enum expert_kind kind, qobs_compat compat, struct fail *f);
