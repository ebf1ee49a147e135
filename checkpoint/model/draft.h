/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Draft layers: layers of a model for speculative decoding (MTP, nextn). transformers leaves them out; vLLM builds a
 * model of its own from them. */
#pragma once

#include "model/architecture.h"

/* Returns true if the module lies in draft layers: by the row of config.json, or else by the general rule. */
bool draft_holds(const struct architectures *found, const char *module, size_t length);

/* Returns true if the row of config.json says that vLLM loads its draft layers quantized. */
bool draft_loads(const struct architectures *found);

/* Writes entry `index` of `ignore` for draft layers that stay, under every name that vLLM may have for them; false:
 * there are fewer. */
bool draft_ignore(const struct architectures *found, size_t index, char *text, size_t size);
