/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantization schemes by the names compressed-tensors and vLLM give them. */
#ifndef QOBS_TOOLS_SCHEME_H
#define QOBS_TOOLS_SCHEME_H

#include <stddef.h>

struct scheme {
    const char *name;
    const char *weights; /* settings of the weights' observer: "key=value key=value" */
    const char *inputs;  /* of the activations'; NULL: they are not quantized */
    const char *summary;
};

/* The scheme of that name, or NULL. */
const struct scheme *scheme_find(const char *name);

/* By index; NULL after the last. */
const struct scheme *scheme_at(int index);

/* Which set of layers that share a global scale has a member of this name ("gate_proj")? -1: none. */
int scheme_fused_set(const char *name, size_t length);

/* The members of a set by index; NULL after the last. */
const char *scheme_fused_member(int set, int index);

#endif
