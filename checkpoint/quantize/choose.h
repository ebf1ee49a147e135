/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Decides which tensors are quantized, with which group of the configuration. */
#pragma once

#include "model/weights.h"
#include "schemes/quant_config.h"

/* Fills `reason` and `group` of every weight. Under QOBS_COMPAT_LLM_COMPRESSOR "Linear" targets every weight; otherwise
 * the linear layers by their names. Fails if a selected tensor cannot be quantized: not a matrix, no floats. */
int choose_weights(struct weights *weights, const struct quant_config *config, qobs_compat compat, struct fail *f);

/* Adds to the ignore list the modules that are left out though a loader may take them for linear layers: lm_head,
 * routers. oneshot of llm-compressor lists them, too. */
int choose_list_ignored(const struct weights *weights, struct quant_config *config, struct fail *f);

/* Returns the reason in a few words for a table, such as "ignored". */
const char *weight_reason_name(enum weight_reason reason);
