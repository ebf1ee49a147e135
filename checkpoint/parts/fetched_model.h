/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A model whose shards a command fetches, as a directory that can be opened: OUT.parts/fetch/model has links to the
 * files that are there, and stand-ins for the shards. */
#pragma once

#include "files/fetched_shards.h"

/* Zero-initialize it. */
struct fetched_model {
    char *root;            /* OUT.parts/fetch */
    char *view;            /* the directory to open */
    char *hashes, *ranges; /* directories: see fetched_shards */
    char **names;          /* of the shards that are fetched */
    size_t name_count;
    size_t shard_count; /* of the model */
    struct fetched_shards shards;
    int lock; /* descriptor; it has no meaning before root is set */
};

/* Fetches the index and config.json, if `model` lacks them, and the headers of the shards that it lacks. `parts` is the
 * directory OUT.parts; it is made. stopped: as in fetch_command. */
int fetched_model_open(struct fetched_model *m, const char *model, const char *parts,
                       const struct fetch_command *command, struct fail *f);

/* Removes the fetched shards and frees everything; what a later run can use stays in OUT.parts. */
void fetched_model_close(struct fetched_model *m);
