/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Which runtimes load the output of a run: by its schemes, its architecture and its experts. */
#pragma once

#include "quantize/selection.h"

/* Why a runtime does not load the output. */
struct refusal {
    char why[128];     /* "": it does */
    const char *first; /* a tensor that is the reason; NULL: none */
    const char *list;  /* of the architecture, "a|b" or "*", if the layers in it are the reason; else NULL */
    bool always;       /* it loads these layers in no format */
};

struct runtime_support {
    unsigned devices; /* bits of enum device: vLLM has kernels for the scheme; 0: it does not load it */
    struct refusal vllm, transformers;
};

/* Finds what loads the layers of one group. */
void runtime_support_of_group(struct runtime_support *support, const struct selection *selection,
                              const struct quant_group *group);

/* Finds what loads the whole output. */
void runtime_support_find(struct runtime_support *support, const struct selection *selection);

/* Fails if vLLM does not load it because of sets of several schemes, or if nothing loads it, unless the arguments allow
 * such sets or findings. */
int runtime_support_check(const struct selection *selection, bool mixed_sets, bool findings, struct fail *f);
