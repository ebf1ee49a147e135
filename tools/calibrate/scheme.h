/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantization schemes under the names of compressed-tensors and vLLM. */
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

#endif
