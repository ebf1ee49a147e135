/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The state of one run of qobs calibrate, and its steps. */
#ifndef QOBS_TOOLS_CALIBRATE_H
#define QOBS_TOOLS_CALIBRATE_H

#include "activations.h"
#include "activations/column_importance.h"
#include "bases.h"
#include "layers.h"
#include "files/output.h"
#include "files/safetensors.h"

struct calibration {
    const char *model, *out, *report;
    const struct scheme *scheme;
    struct bases bases;
    struct layers layers;
    struct activations activations;
    struct importance_sources importance; /* weighs the errors of columns */
    struct st_writer writer;
    double seconds; /* time for the weights, in seconds */
};

/* Observes activations and weights and writes the results through calibration->writer. The caller finishes the
 * writer. Returns an exit code. */
int calibration_run(struct calibration *calibration, struct threads *threads);

/* Prints the ten layers that quantize worst, or all of them, and a summary to standard output. Returns an exit code. */
int calibration_print(const struct calibration *calibration, bool all);

/* Prints warnings to standard error: modules whose scales are missing because nothing was recorded for them. Returns
 * false if there are any. */
bool calibration_warn(const struct calibration *calibration);

/* Returns the JSON report, to be freed with free(). NULL: no memory. */
char *calibration_report(const struct calibration *calibration);

#endif
