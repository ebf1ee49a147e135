/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Sets of weights that vLLM runs as one matrix, so that they have one scheme and share scales of complete tensors, and
 * the partners that model_free_ptq moves into one shard. */
#pragma once

#include <stddef.h>

#include "model/architecture.h"
#include "model/weights.h"
#include "schemes/releases.h"

/* Writes to set[i] the index of the first tensor of the set that tensor i belongs to, or i if it belongs to none.
 * names: `count` full names of tensors ("....weight"), in any order. architectures: those of the model, or NULL. An
 * incomplete set (gate_proj without up_proj) is as many sets of one. Fails if there is no memory. */
int fused_sets(const char *const *names, size_t count, enum fused_rules rules,
               const struct architectures *architectures, size_t *set, struct fail *f);

/* Finds the sets of vLLM among the weights of a model. Returns a status. */
int weights_find_sets(struct weights *weights, const struct architectures *architectures, struct fail *f);

/* Writes to home[i] the index of the tensor in whose shard tensor i is written: the owner of its set by the dependency
 * patterns of model_free_ptq (q_proj for k_proj and v_proj, wq_a, gate_proj, w1), or i. Those of FUSED_MAPPINGS have
 * the first member of a set as its owner. Only for tensor_group. */
int fused_homes(const char *const *names, size_t count, enum fused_rules rules, size_t *home, struct fail *f);
