/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Which tensors of a checkpoint are weights to quantize. */
#ifndef QOBS_TOOLS_SELECT_H
#define QOBS_TOOLS_SELECT_H

#include <stdbool.h>
#include <stddef.h>

#include "tensors.h"

struct patterns; /* compiled regular expressions */

struct selection {
    struct patterns *targets, *ignore;
};

/* POSIX extended regular expressions over module names ("model.layers.0.mlp.up_proj"), matched from the name's start as
 * compressed-tensors does; its prefix "re:" may be there. Zero *selection first. */
int selection_add_target(struct selection *selection, const char *expression, struct fail *f);
int selection_add_ignore(struct selection *selection, const char *expression, struct fail *f);
void selection_free(struct selection *selection);

/* Is it a weight that is selected? Without targets: 2-D weights that are not embeddings, norms or lm_head. With targets: the
 * weights, 2-D and above, whose module matches one. In both cases not what an ignore matches. *module gets the length of the
 * module's part of the name. */
bool selection_has(const struct selection *selection, const struct tensor_ref *ref, size_t *module);

/* Does an ignore match this module? */
bool selection_ignores(const struct selection *selection, const char *module, size_t length);

#endif
