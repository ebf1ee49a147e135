/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The quantization_config of an output in a dialect. */
#pragma once

#include "quantize/selection.h"

/* Fails if the configuration of the dialect cannot describe the selection: layers that keep the codes which they have,
 * and the name of a layer that stays within that of one that does not. */
int dialect_config_check(const struct selection *selection, struct fail *f);

/* Returns the configuration. NULL: no memory. */
json_object *dialect_config_json(const struct selection *selection);
