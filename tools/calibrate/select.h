/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Selects the tensors of a checkpoint that are weights to quantize. */
#ifndef QOBS_TOOLS_SELECT_H
#define QOBS_TOOLS_SELECT_H

#include <stdbool.h>
#include <stddef.h>

#include "files/tensors.h"

struct patterns; /* compiled regular expressions */

struct selection {
    struct patterns *targets, *ignore;
    const char *first_target; /* as it was given, for messages; NULL: none */
    bool linear; /* "Linear", the class that recipes of llm-compressor target: what is selected without targets */
};

/* Add a POSIX extended regular expression over module names such as "model.layers.0.mlp.up_proj". It must match at
 * the start of the name, as in compressed-tensors; the prefix "re:" is allowed. The
 * target "Linear" means what is selected without targets. Zero-initialize *selection first. */
int selection_add_target(struct selection *selection, const char *expression, struct fail *f);
int selection_add_ignore(struct selection *selection, const char *expression, struct fail *f);
void selection_free(struct selection *selection);

/* Returns true if the tensor is a selected weight. Without targets, these are 2-D weights that are not embeddings,
 * norms or lm_head. With targets, they are the weights of 2 or more dimensions whose module matches a target. In
 * both cases, modules that match an ignore expression are excluded. *module receives the length of the module's part
 * of the name. */
bool selection_includes(const struct selection *selection, const struct tensor_ref *ref, size_t *module);

/* Returns true if the module matches an ignore expression. */
bool selection_ignores(const struct selection *selection, const char *module, size_t length);

#endif
