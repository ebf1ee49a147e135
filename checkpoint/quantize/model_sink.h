/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The sink of quantize: the shards of a model. */
#pragma once

#include <stdatomic.h>

#include "files/output_directory.h"
#include "quantize/layout.h"
#include "quantize/word_buffers.h"

/* An output file. */
struct output_file {
    int fd; /* -1: not open */
    bool done;
    _Atomic uint64_t left; /* bytes that are not written yet */
};

struct model_sink {
    struct sink sink;
    struct layout_writer writer;
    struct output_layout *layout;
    struct output_directory *out;
    struct output_file *files;  /* one for each shard */
    struct word_buffers *words; /* one for each weight */
    size_t weight_count;
    size_t part;           /* that writes; 0: there are no parts */
    size_t *part_of_shard; /* which part writes it, from 1; NULL: there are no parts */
};

/* Makes a sink for a layout of CONTENTS_MODEL, which writes to an output directory that is opened later. */
int model_sink_open(struct model_sink *m, struct output_layout *layout, size_t weight_count,
                    const struct activation_scales *activations, struct output_directory *out, struct fail *f);
void model_sink_close(struct model_sink *m);
