/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Parts that the two passes over the weights share (calibrate_slices.c, calibrate_search.c). */
#ifndef QOBS_TOOLS_CALIBRATE_RUN_H
#define QOBS_TOOLS_CALIBRATE_RUN_H

#include <pthread.h>

#include "calibrate.h"
#include "progress.h"

struct run {
    struct calibration *c;
    const struct base_observer *weights;
    qobs_config *minmax_config; /* min/max configuration: one range for the tensor */
    struct progress progress;
    pthread_mutex_t lock; /* protects the members below and the recorded values of the layers */
    size_t failed_layer;  /* index of the first layer that failed; c->layers.count: none */
    struct fail failure;
    int code;
};

/* run_record_failure records a failure of a layer. If several layers fail, the first one is reported, so that the
 * message does not depend on the threads. run_record_error records an error of the library. */
void run_record_failure(struct run *run, size_t layer, int code, const char *message);
void run_record_error(struct run *run, size_t layer, qobs_error error);
/* Returns true if this layer or one before it has failed. */
bool run_failed_before(struct run *run, size_t layer);

/* Writes the scales (and zero points) of the observer, starting at qparam `first` of the layer, and records the
 * counts. */
void run_write_qparams(struct run *run, size_t layer, const qobs_observer *observer, uint64_t first);

/* run_slices processes slices of rows, for observers that do not need complete tensors. run_searches processes
 * complete tensors, for observers that search. Both return an exit code; failures of layers are recorded in `run`. */
int run_slices(struct run *run, struct threads *threads);
int run_searches(struct run *run, struct threads *threads);

/* Returns the larger number, or NaN if one is NaN. */
double run_max_or_nan(double a, double b);

#endif
