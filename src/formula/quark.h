/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A step that AMD Quark's formulas share (quark/torch/quantization/observer/observer.py and utils.py, 2026). */
#pragma once

#include "formula/formula.h"

/* The dtype that scale_type names, or `otherwise`. */
static inline qobs_dtype qobs_quark_scale_dtype(const struct formula_params *params, qobs_dtype otherwise)
{
    return params->quark.scale_dtype ? params->quark.scale_dtype : otherwise;
}
