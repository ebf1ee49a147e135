/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The tensors of a GGUF file as weights of the engine: matrices whose numbers are read, or bytes that are copied. */
#pragma once

#include "model/weights.h"
#include "schemes/gguf_types.h"

struct gguf_weights {
    struct weights weights; /* weight i is choice i */
    struct st_tensor *stored;
    struct model_tensor *sources;
    size_t changed, requantized; /* tensors that get another type; those of them that were quantized */
};

/* Fails for a tensor that gets another type and cannot be read. Free it also after a failure. */
int gguf_weights_make(struct gguf_weights *made, const struct gguf_choice *choices, const struct gguf_model *model,
                      struct fail *f);
void gguf_weights_free(struct gguf_weights *made);

/* Returns true if the tensor gets another type than it has. */
bool gguf_choice_changes(const struct gguf_choice *choice);

/* Returns the bytes of the tensor in its new type. */
uint64_t gguf_choice_bytes(const struct gguf_choice *choice);
