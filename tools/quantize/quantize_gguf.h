/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs quantize of GGUF files. */
#ifndef QOBS_TOOLS_QUANTIZE_GGUF_H
#define QOBS_TOOLS_QUANTIZE_GGUF_H

#include "quantize/gguf_call.h"
#include "schemes.h"

/* Quantizes a file, shows progress and prints the summary. Returns an exit code. */
int quantize_gguf(struct gguf_quantize_args *args, struct table_run *run);

/* Prints the end of --help: the schemes of GGUF files. */
void print_gguf_schemes(void);

#endif
