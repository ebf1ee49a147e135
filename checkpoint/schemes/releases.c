/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Read in and tried with llm-compressor 0.14.0 on compressed-tensors 0.19.0, and 0.14.1a20261020 on 0.20.0. */
#include "schemes/releases.h"

#define RELEASE_0_14 .compressed_tensors = "0.19.0", .observers = "llmc", .fused = FUSED_LLM_COMPRESSOR

static const struct quant_release rows[] = {
    [QOBS_COMPAT_VLLM] = {.name = "vllm", .compressed_tensors = "0.19.0", .observers = "llmc", .fused = FUSED_VLLM},
    [QOBS_COMPAT_LLM_COMPRESSOR] = {.name = "llm-compressor", RELEASE_0_14},
    [QOBS_COMPAT_LLM_COMPRESSOR_0_14] = {.name = "llm-compressor-0.14", RELEASE_0_14},
    [QOBS_COMPAT_NEXT] = {.name = "next",
                          .compressed_tensors = "0.20.0",
                          .observers = "llmc_2026_10",
                          .omits_unset = true,
                          .fused = FUSED_MAPPINGS},
};

const struct quant_release *quant_release_of(qobs_compat compat)
{
    return compat >= QOBS_COMPAT_VLLM && (size_t)compat < sizeof rows / sizeof *rows ? &rows[compat] : NULL;
}
