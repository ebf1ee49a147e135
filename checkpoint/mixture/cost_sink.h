/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The sink of plan: what the errors of quantized weights cost the model. */
#pragma once

#include "engine/sink.h"

/* A half: F was estimated from one half of the sequences. */
enum { HALVES = 2 };

/* The weights of the errors of a tensor, the same under any scheme. */
struct error_weights {
    float *columns;      /* mean square of each column of the inputs; 1 if nothing is known */
    float *rows[HALVES]; /* F, the sensitivity of each row; NULL: none */
    bool known;          /* columns and rows are */
    size_t sinks;        /* that still need it */
};

/* The costs of all weights, which the sinks of a plan share. */
struct weighing {
    const struct weights *weights; /* of the first scheme */
    const struct importance_sources *importance;
    const struct saved_states *states;
    struct error_weights *items; /* one for each weight */
    size_t *next_of_set;         /* for each weight, the next one of its set; SIZE_MAX: none */
};
int weighing_open(struct weighing *weighing, struct fail *f);
void weighing_close(struct weighing *weighing);

struct weight_cost {
    int64_t tokens;      /* of the second half of a recording, which measure; 0: none */
    bool known;          /* `loss` is */
    double error;        /* sum of d H d^T over the rows, with what is known of H */
    double loss[HALVES]; /* half of the sum of F d H d^T: the KL divergence for each token, in nats */
};

struct cost_sink {
    struct sink sink;
    struct weighing *weighing;
    struct weight_cost *costs; /* one for each weight of the scheme */
};

/* Makes a sink for `count` weights. */
int cost_sink_open(struct cost_sink *sink, struct weighing *weighing, size_t count, struct fail *f);
void cost_sink_close(struct cost_sink *sink);
