/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Releases of llm-compressor and how their files differ, each with the compressed-tensors that it needs: a row for each
 * value of qobs_compat. */
#pragma once

#include "qobs/checkpoint.h"

/* Which sets of weights are fused. */
enum fused_rules {
    FUSED_VLLM,           /* all that vLLM fuses, by parent: those of the architectures, then larger sets first */
    FUSED_LLM_COMPRESSOR, /* those of model_free_ptq in llm-compressor 0.14, by name in natural order */
    FUSED_MAPPINGS        /* those of observers/fused_mappings.py in llm-compressor 0.14.1a20261020, as for vLLM */
};

struct quant_release {
    const char *name;               /* of the value */
    const char *compressed_tensors; /* its version, as config.json has it */
    const char *observers;          /* presets of the library begin so */
    bool omits_unset;               /* config.json lacks what is null and a zp_dtype that was not given */
    enum fused_rules fused;         /* sets that share a global scale */
};

/* Returns the row of a value; NULL: there is none. */
const struct quant_release *quant_release_of(qobs_compat compat);
