/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Safetensors files that a command fetches when their tensors are read. At most two of them are on the disk, the one
 * that is being fetched among them. Each has a stand-in of its size, with its header and holes, which a model opens in
 * its place. Stand-ins keep what is read before the jobs of weights, such as scales of quantized sources, for good, and
 * what somebody still reads when its file goes. */
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "files/deferred.h"
#include "files/fetch_command.h"

enum { FETCHED_AT_ONCE = 2 };

struct fetched_range {
    uint64_t begin, end;
};

struct fetched_ranges {
    struct fetched_range *items;
    size_t count;
};

struct fetched_shard {
    struct deferred_file file;
    struct fetched_shards *all;
    const char *name;
    bool here;                   /* the file is on the disk, and its map shows it */
    uint64_t used;               /* the larger, the later */
    uint64_t header, size;       /* bytes */
    struct fetched_ranges held;  /* what somebody reads */
    struct fetched_ranges kept;  /* what its stand-in has of that */
    struct fetched_ranges often; /* what its stand-in has for good */
};

/* The first members are set by the caller and belong to it. */
struct fetched_shards {
    struct fetch_command command;
    const char *stands; /* directory of the stand-ins */
    const char *hashes; /* directory of files with the hash of each file that was fetched */
    const char *ranges; /* directory of files with the bytes that each stand-in has for good */
    const char *state;  /* what the user removes to begin anew */
    struct fetched_shard *items;
    size_t count;
    pthread_mutex_t lock;
    uint64_t clock;
    int status; /* the first failure while tensors were read */
    struct fail failure;
};

/* Makes the stand-ins that are missing, of the headers that the command fetches, and defers maps of all. `names` stay
 * valid. A stand-in that is there stands for its file. */
int fetched_shards_open(struct fetched_shards *all, const char *const *names, size_t count, struct fail *f);

/* Removes the fetched files; stand-ins and hashes stay. Does nothing if nothing was opened. */
void fetched_shards_close(struct fetched_shards *all);
