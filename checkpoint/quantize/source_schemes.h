/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Schemes that keep the numbers of a model that is quantized already. */
#pragma once

#include "quantize/quantize_call.h"

/* Fills the configuration with a group for each kind of codes that the weights of the opened model have. Fails if there
 * are none, and for codes that no scheme holds or whose scheme the model does not tell. */
int source_schemes_make(struct selection *selection, struct fail *f);

/* Fails if a weight is quantized whose codes the scheme does not hold. After the engine is open. */
int source_schemes_check(const struct quantize_call *run, struct fail *f);

/* Fails if a number is not the same. After the engine has run. */
int source_schemes_check_numbers(const struct quantize_call *run, struct fail *f);
