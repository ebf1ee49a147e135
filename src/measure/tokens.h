/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* How many tokens a value has. */
#pragma once

#include "base/tensor.h"

/* llm-compressor's record_observed_tokens: the rows of a matrix; other tensors have no tokens. */
uint64_t qobs_tokens(const struct view *value);

/* AMD Quark's count: rows along the last dimension with an element other than 0. */
uint64_t qobs_nonzero_tokens(const struct view *value);
