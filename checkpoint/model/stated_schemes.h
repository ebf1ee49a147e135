/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Schemes of the layers of a quantized model, as its configuration states them: compressed-tensors', Model-Optimizer's,
 * Quark's or transformers'. */
#pragma once

#include "model/model.h"
#include "schemes/quant_config.h"

#define STATED_FP8 "transformers" /* the maker of fp8 in blocks */

/* Reads quantization_config of config.json, or hf_quant_config.json. The configuration stays without groups if there is
 * none that states schemes. *maker: whose names of tensors differ from those of compressed-tensors; NULL: nobody's.
 * Fails for schemes that are not read, with those that are. */
int stated_schemes_read(struct quant_config *config, const char **maker, const struct model *model, struct fail *f);

/* Fails if the schemes are not read. */
int stated_schemes_check(const struct model *model, struct fail *f);

/* Returns the group of a module, by name before class as compressed-tensors resolves it; NULL: none. *by_class: only
 * its class matches. */
const struct quant_group *stated_group(const struct quant_config *config, const struct quant_matchers *targets,
                                       const char *name, size_t length, bool *by_class);
