/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Parts of a checkpoint that several processes write. Part I of N is a directory OUT.parts/part-I-of-N, which appears
 * when it is complete: "files" has its shards, those of part 1 also every other file, and "part.json" describes it. */
#pragma once

#include "quantize/quantize_call.h"

/* Names in the directory of a part. */
#define PART_FILES "files"
#define PART_MANIFEST "part.json"

/* Returns "OUT.parts", to be freed. NULL: no memory. */
char *parts_directory(const char *out);

/* Reads "part-I-of-N". Returns false for other names. */
bool part_parse_name(const char *name, size_t *part, size_t *count);

/* Writes to part[i] the part from 1 to `count` that writes shard i: the part of its number, if there are enough, else
 * the largest shard first, each to the part with the fewest bytes. Fails if there is no memory. */
int parts_assign(const struct output_layout *layout, size_t count, size_t *part, struct fail *f);

/* Opens the output of part args->part of args->part_count and checks that the final directory could be made. */
int part_open(struct quantize_call *run, struct fail *f);

/* Writes part.json, the last file of a part, and gives the part its name. */
int part_publish(struct quantize_call *run, struct fail *f);
