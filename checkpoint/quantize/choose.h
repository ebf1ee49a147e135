/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Decides which tensors are quantized, with which group of the configuration. */
#pragma once

#include "model/architecture.h"
#include "model/weights.h"
#include "schemes/quant_config.h"

/* Fills `reason` and `group` of every weight. Under QOBS_COMPAT_LLM_COMPRESSOR "Linear" targets every weight; otherwise
 * the linear layers by the model's architecture; draft layers as `draft` says. Fails if a selected tensor cannot be
 * quantized: not a matrix, no floats. */
int choose_weights(struct weights *weights, const struct architectures *architectures,
                   const struct quant_config *config, qobs_compat compat, qobs_draft draft, struct fail *f);

/* Leaves the draft layers as they are. */
void choose_leave_drafts(struct weights *weights, const struct architectures *architectures);

/* Adds to the ignore list every module that a target claims and that is not quantized, under any name that a loader may
 * have for it: matrices that were left out, and the heads of the architecture, which have no tensor if they are tied to
 * the embeddings. */
int choose_list_ignored(const struct weights *weights, const struct architectures *architectures,
                        struct quant_config *config, struct fail *f);

/* Says whether an entry of `ignore` or a target matches one of the weights that are quantized, or stay in codes if
 * `kept`. */
int entry_matches(bool *matches, const char *entry, const struct weights *weights, bool kept, struct fail *f);

/* Returns the reason in a few words for a table, such as "ignored". */
const char *weight_reason_name(enum weight_reason reason);

/* Sets of layers that vLLM runs as one matrix, but whose members have several schemes. */
struct mixed_sets {
    size_t count;
    /* They describe one of the sets. The refusal says how to go on, without a pattern for --ignore if a qobs_error
     * would not hold it. */
    struct fail warning, refusal;
};

/* Finds these sets. A member that the architecture keeps in the dtype of the model does not count. Returns a status. */
int mixed_sets_find(struct mixed_sets *m, const struct weights *weights, const struct quant_config *config,
                    struct fail *f);
