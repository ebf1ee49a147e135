/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Decides which tensors are quantized, with which group of the configuration. */
#pragma once

#include "model/architecture.h"
#include "model/weights.h"
#include "schemes/quant_config.h"

/* Fills `reason` and `group` of every weight. Under QOBS_COMPAT_LLM_COMPRESSOR "Linear" targets every weight; otherwise
 * the linear layers by the model's architecture; a tensor of experts that all stay as they are is whole again. Fails if
 * a selected tensor cannot be quantized: not a matrix, no floats, a layer of experts in part. */
int choose_weights(struct weights *weights, const struct architectures *architectures,
                   const struct quant_config *config, qobs_compat compat, struct fail *f);

/* Adds to the ignore list every module that a target claims and that is not quantized, under any name that a loader may
 * have for it: matrices that were left out, and the heads of the architecture, which have no tensor if they are tied to
 * the embeddings. */
int choose_list_ignored(const struct weights *weights, const struct architectures *architectures,
                        struct quant_config *config, struct fail *f);

/* Returns the reason in a few words for a table, such as "ignored". */
const char *weight_reason_name(enum weight_reason reason);
