/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantization schemes under the names of compressed-tensors and vLLM, and the sets of layers that vLLM fuses. */
#ifndef QOBS_TOOLS_SCHEME_H
#define QOBS_TOOLS_SCHEME_H

#include <stddef.h>

struct scheme {
    const char *name;
    const char *weights; /* settings of the observer of the weights: "key=value key=value" */
    const char *inputs;  /* settings of the observer of the activations; NULL: they are not quantized */
    const char *summary;
};

/* Returns the scheme with that name in any case, or NULL. */
const struct scheme *scheme_find(const char *name);

/* Returns a scheme by index; NULL after the last one. */
const struct scheme *scheme_at(int index);

/* Returns the number of the fused set (layers that share a global scale) that has a member of this name, such as
 * "gate_proj". -1: none. */
int scheme_fused_set(const char *name, size_t length);

/* Returns a member of a set by index; NULL after the last one. */
const char *scheme_fused_member(int set, int index);

#endif
