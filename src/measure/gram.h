/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The Gram of blocks of columns of activations: for every block the sums over tokens of x_j * x_k, from which
 * qobs.local_hessian has H = E[x x^T]. NVIDIA's Model-Optimizer collects the same for blocks of 16. */
#pragma once

#include "base/runtime.h"
#include "kernels/kernels.h"

/* Blocks of `block` columns start at every multiple of `period` columns; the last of a period may be shorter. A block
 * has `block` rows of `block` entries, of which those beyond its columns are 0. Sums are symmetric. */
struct gram {
    int64_t columns; /* 0: not known yet */
    int64_t block, period;
    uint64_t tokens;
    double *sum; /* [blocks][block][block] */
};

struct gram_block {
    int64_t start, width; /* columns */
    double *sum;          /* `block` entries a row */
};

/* block: columns of a block, period: of a group, in which blocks start anew; each at most `columns`. */
struct gram qobs_gram_of(int64_t columns, int64_t block, int64_t period);
int64_t qobs_gram_blocks(const struct gram *gram);
int64_t qobs_gram_start(const struct gram *gram, int64_t index, int64_t *width); /* of a block, in columns */
struct gram_block qobs_gram_block(const struct gram *gram, int64_t index);       /* the gram has sums */
size_t qobs_gram_size(const struct gram *gram); /* bytes of all sums; 0 if that does not fit */

/* Allocates the sums, as 0. *gram comes from qobs_gram_of. */
int qobs_gram_reserve(const struct runtime *runtime, struct gram *gram, qobs_error *error);
void qobs_gram_release(const struct runtime *runtime, struct gram *gram);

/* Adds activations v (..., columns) to a gram of that number of columns, which gets its sums from the first ones.
 * Tokens are taken in chunks of QOBS_GRAM_CHUNK from the start of v: products and sums in a chunk are float, in the
 * order of the tokens, and the chunk's sum is added to the double. Runs on the executor; an entry's bits depend neither
 * on the instruction set nor on the number of threads. After a failure the sums are as before. */
enum { QOBS_GRAM_CHUNK = 64 };
int qobs_gram_add(const struct runtime *runtime, const struct kernel_table *kernels, struct gram *gram,
                  const struct view *v, qobs_error *error);

/* True if no sum is infinite or NaN. */
bool qobs_gram_is_finite(const struct gram *gram);

/* True if all sums are 0. */
bool qobs_gram_is_zero(const struct gram *gram);

/* Adds the sums of another gram of the same blocks. */
void qobs_gram_merge(struct gram *gram, const struct gram *other);
