/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Orders the tensors of the output as safetensors does and makes the headers of its files. */
#pragma once

#include "quantize/layout.h"

/* Sorts layout->tensors, fills their offsets, the shards' headers and sizes, and the parts of `weight_count` weights.
 * Fails if two tensors have one name. */
int shard_headers_make(struct layout *layout, size_t weight_count, struct fail *f);
