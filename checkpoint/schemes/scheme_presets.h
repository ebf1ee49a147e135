/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The preset schemes, as a table. */
#pragma once

#include "schemes/quant_args.h"

struct scheme_preset {
    const char *name;
    const struct quant_args *weights;
    const struct quant_args *inputs; /* NULL: activations are not quantized */
    const char *summary;
};

/* Returns a preset by index; NULL after the last one. */
const struct scheme_preset *scheme_preset_at(size_t index);

/* Returns the preset with that name in any case, or NULL. */
const struct scheme_preset *scheme_preset_find(const char *name);
