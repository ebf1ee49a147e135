/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Decides which tensors are quantized, with which group of the configuration. */
#pragma once

#include "quantize/weights.h"
#include "schemes/quant_config.h"

/* Fills `reason` and `group` of every weight. Under QOBS_COMPAT_LLM_COMPRESSOR "Linear" targets every weight; otherwise
 * the linear layers by their names. Fails if a selected tensor cannot be quantized: not a matrix, no floats. */
int choose_weights(struct weights *weights, const struct quant_config *config, qobs_compat compat, struct fail *f);

/* Returns the reason in a few words for a table, such as "ignored". */
const char *weight_reason_name(enum weight_reason reason);
