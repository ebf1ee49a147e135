/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The quantization_config of an output in a dialect. */
#pragma once

#include "quantize/selection.h"

/* Fails if the configuration of the dialect cannot describe the selection: layers that keep the codes which they have,
 * and the name of a layer that stays within that of one that does not. */
int dialect_config_check(const struct selection *selection, struct fail *f);

/* Returns the configuration, and the contents of hf_quant_config.json. NULL: no memory. */
json_object *dialect_config_json(const struct selection *selection);
json_object *dialect_file_json(const struct selection *selection);

/* Gives scales of inputs the names, dtype and shape of the formats that are stored. */
int dialect_convert_activations(struct activation_scales *activations, const struct selection *selection,
                                struct fail *f);
