/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The types that the tensors of a GGUF file get. */
#pragma once

#include "files/text.h"
#include "schemes/gguf_mixtures.h"

/* The wishes of the user. Patterns search names; the first that finds one gives its type, in place of the mixture. */
struct gguf_type_request {
    const struct gguf_scheme *scheme;
    struct texts patterns; /* "PATTERN=TYPE" */
    bool pure;             /* no mixture: all tensors that are quantized get the type of the scheme */
    bool importance;       /* there is some */
};

struct gguf_choice {
    const struct gguf_tensor *tensor;
    qobs_gguf_type type;
    bool stays;     /* its name or its shape says that it is not quantized */
    bool fell_back; /* its columns do not fit the type that was chosen first */
};

/* Chooses types for all tensors of a model. *choices, to be freed, has them in the order of output files: those without
 * a layer first, then by layer, both by name. Fails for patterns that choose nothing. */
int gguf_choose_types(struct gguf_choice **choices, const struct gguf_model *model,
                      const struct gguf_type_request *request, struct fail *f);
