/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales of inputs that a model brings with it which is quantized already. */
#pragma once

#include "quantize/selection.h"

/* Fills `scales` with those of the model if its configuration says that all inputs are quantized as the schemes have
 * it, and nothing is recorded. *found: so it is. Fails if a layer has none, or has one that no loader reads. */
int source_inputs_find(struct activation_scales *scales, const struct selection *selection, bool *found,
                       struct fail *f);

/* Notes that scales of inputs are left out, if layers of the model have them and their schemes store none. */
int source_inputs_note_dropped(struct selection *selection, struct fail *f);
