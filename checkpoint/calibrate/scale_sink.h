/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The sink of calibrate: one file with scales, and what a report says of them. */
#pragma once

#include <pthread.h>

#include "files/safetensors.h"
#include "quantize/layout.h"

struct scale_statistics {
    double min_scale, max_scale;
    qobs_counts counts;
    qobs_search_report search; /* steps is 0 if nothing was searched */
    uint64_t *candidates; /* number of qparams that chose each step, then of those that chose none; NULL: no list */
};

struct scale_sink {
    struct sink sink;
    struct layout_writer writer;
    struct st_writer file; /* begun by the caller before the engine runs */
    size_t count;
    struct scale_statistics *statistics; /* one for each weight */
    pthread_mutex_t lock;                /* protects them in passes */
};

/* Makes a sink for a layout of CONTENTS_SCALES of `count` weights. Close it also after a failure. */
int scale_sink_open(struct scale_sink *sink, const struct output_layout *layout,
                    const struct activation_scales *activations, size_t count, struct fail *f);
void scale_sink_close(struct scale_sink *sink);
