/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_checkpoint_quantize of a model whose shards a command fetches. */
#pragma once

#include "qobs/checkpoint.h"

/* Quantizes a model that is there. */
typedef int quantize_function(const qobs_checkpoint_quantize_args *args, qobs_error *error);

/* Quantizes shard by shard, each as a part, and joins the parts. Parts that are there already stay. With args->part it
 * makes that part alone. */
int quantize_fetched(const qobs_checkpoint_quantize_args *args, quantize_function *quantize, qobs_error *error);
