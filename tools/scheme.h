/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantization schemes by the names compressed-tensors and vLLM give them. */
#ifndef QOBS_TOOLS_SCHEME_H
#define QOBS_TOOLS_SCHEME_H

struct scheme {
    const char *name;
    const char *num_bits, *strategy, *group_size, *symmetric; /* of the weights, as settings; NULL: not set */
    const char *summary;
};

/* The scheme of that name, or NULL. */
const struct scheme *scheme_find(const char *name);

/* By index; NULL after the last. */
const struct scheme *scheme_at(int index);

#endif
