/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Sets of layers that vLLM runs as one matrix, but whose members have several schemes. */
#pragma once

#include "model/weights.h"
#include "schemes/quant_config.h"

struct mixed_sets {
    size_t count;
    /* They describe one of the sets. The refusal says how to go on, without a pattern for --ignore if a qobs_error
     * would not hold it. */
    struct fail warning, refusal;
};

/* Finds these sets. A member that the architecture keeps in the dtype of the model does not count. Returns a status. */
int mixed_sets_find(struct mixed_sets *m, const struct weights *weights, const struct quant_config *config,
                    struct fail *f);
