/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The schemes of GGUF files, and the types that their mixtures give to tensors, as tables. They are those of
 * llama-quantize. Source: src/llama-quant.cpp of llama.cpp, commit 007dbbf3. */
#pragma once

#include "files/gguf.h"

/* A scheme: the type of most tensors, and the number of the key general.file_type. */
struct gguf_scheme {
    const char *name, *type;
    unsigned file_type;
    uint64_t bit; /* in the rows of mixtures */
};

/* Returns scheme `index`, or NULL. */
const struct gguf_scheme *gguf_scheme_at(size_t index);

/* Returns the scheme with that general.file_type, or NULL. */
const struct gguf_scheme *gguf_scheme_of(uint64_t file_type);

/* Finds the scheme of that name, in any case of letters. */
int gguf_scheme_find(const struct gguf_scheme **scheme, const char *name, struct fail *f);

/* Returns true if llama-quantize refuses the scheme without importance for a type. */
bool gguf_scheme_needs_importance(const struct gguf_scheme *scheme, const char *type);

/* Returns false if the name says that a tensor stays as it is. */
bool gguf_name_is_quantized(const char *name);

/* Returns true for the output and for embeddings, which have no importance. */
bool gguf_name_is_embedding(const char *name);

/* Returns the layer in a tensor's name, or -1: 3 of blk.3.attn_q.weight. */
int64_t gguf_layer_of(const char *name);

/* Reads general.architecture, of which names of other keys begin. Returns false if there is none. */
bool gguf_architecture(const struct gguf_file *file, char *text, size_t size);

/* Returns the whole number under the prefix of the architecture, of a list the first one, or `otherwise`. */
uint64_t gguf_number_of(const struct gguf_file *file, const char *architecture, const char *name, uint64_t otherwise);

/* Facts that mixtures depend on, and counts of the tensors that have passed, in their order. */
struct gguf_mixture {
    const struct gguf_scheme *scheme;
    unsigned conditions; /* of the model */
    bool tied;           /* the embeddings are the output, too */
    uint64_t layers, experts;
    uint64_t values, values_seen; /* tensors of attention's values, all and those that have passed */
    uint64_t downs_seen;
};

/* Reads what keys and names of a model say. Fails without the keys that a mixture needs. */
int gguf_mixture_open(struct gguf_mixture *mixture, const struct gguf_model *model, const struct gguf_scheme *scheme,
                      bool importance, struct fail *f);

/* Names the type of the next tensor. */
int gguf_mixture_type(struct gguf_mixture *mixture, const struct gguf_tensor *tensor, const char **type,
                      struct fail *f);

/* Returns the type for columns that no block of `type` divides; NULL: there is none. */
const char *gguf_type_for_odd_columns(const char *type);
