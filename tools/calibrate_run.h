/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What the passes over the weights share (calibrate_slices.c, calibrate_search.c). */
#ifndef QOBS_TOOLS_CALIBRATE_RUN_H
#define QOBS_TOOLS_CALIBRATE_RUN_H

#include <pthread.h>

#include "calibrate.h"
#include "progress.h"

struct run {
    struct calibration *c;
    const struct base_observer *weights;
    qobs_config *whole; /* everything as one range */
    struct progress progress;
    pthread_mutex_t lock; /* over what follows and what is noted of the layers */
    size_t failed_layer;  /* the first of the layers that failed; c->layers.count: none */
    struct fail failure;
    int code;
};

/* Of several failures the one of the first layer is told, so that the message does not depend on the threads. */
void run_note_failure(struct run *run, size_t layer, int code, const char *message);
/* What the library says of a layer, or of a part of it. */
void run_note_refusal(struct run *run, size_t layer, qobs_error error);
/* Has this layer or one before it failed? */
bool run_failed_before(struct run *run, size_t layer);

/* Writes the observer's scales (and zero points) as the layer's from qparam `first` on, and notes what was seen. */
void run_write_qparams(struct run *run, size_t layer, const qobs_observer *observer, uint64_t first);

/* Row by row, in slices: for observers that need not see a tensor whole. Return an exit code; failures of layers are noted. */
int run_slices(struct run *run, struct threads *threads);

/* Tensor by tensor, for observers that search. */
int run_searches(struct run *run, struct threads *threads);

/* The larger number; NaN if one is. */
double run_larger(double a, double b);

#endif
