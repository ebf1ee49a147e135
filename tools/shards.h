/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The index of a sharded checkpoint: which tensor is in which safetensors file. */
#ifndef QOBS_TOOLS_SHARDS_H
#define QOBS_TOOLS_SHARDS_H

#include <stddef.h>

#include "fail.h"
#include "mapped.h"

struct shard_entry {
    char *tensor;
    char *shard; /* as the index names it */
};

struct shard_index {
    struct shard_entry *entries; /* by shard, then by tensor, as strcmp orders */
    size_t count;
};

/* Reads "weight_map" of a mapped index; the rest of the index is ignored. Fails if a tensor occurs twice and for shards that
 * are not below the directory of the index. On failure *index is zeroed. */
int shard_index_read(struct shard_index *index, const struct mapped *map, struct fail *f);

/* Path of a shard, relative to the directory of `index_path`; to be freed. NULL if there is no memory. */
char *shard_path(const char *index_path, const char *shard);

/* Frees and zeroes. Harmless on a zeroed one. */
void shard_index_free(struct shard_index *index);

#endif
