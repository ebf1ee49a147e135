/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads the index of a sharded checkpoint, which maps each tensor to its safetensors file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "files/fail.h"
#include "files/mapped.h"

struct shard_entry {
    char *tensor;
    char *shard; /* path in the index */
};

struct shard_index {
    struct shard_entry *entries; /* sorted by shard, then by tensor, with strcmp */
    size_t count;
    const char **names; /* of the tensors, sorted */
};

/* Reads "weight_map" of a mapped index and ignores the rest. Fails if a tensor occurs twice, or if a shard is not
 * below the directory of the index. On failure *index is zeroed. */
int shard_index_read(struct shard_index *index, const struct mapped *map, struct fail *f);

/* Returns true if the index has an entry for the tensor. */
bool shard_index_names(const struct shard_index *index, const char *tensor);

/* Returns the path of a shard relative to the directory of `index_path`, to be freed by the caller. NULL: no memory. */
char *shard_path(const char *index_path, const char *shard);

/* Frees everything and zeroes *index. Does nothing if *index is zeroed. */
void shard_index_free(struct shard_index *index);
