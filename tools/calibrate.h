/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One run of qobs calibrate. */
#ifndef QOBS_TOOLS_CALIBRATE_H
#define QOBS_TOOLS_CALIBRATE_H

#include "activations.h"
#include "bases.h"
#include "layers.h"
#include "output.h"
#include "safetensors.h"

struct calibration {
    const char *model, *out, *report;
    const struct scheme *scheme;
    struct bases bases;
    struct layers layers;
    struct activations activations;
    struct recordings importance; /* activations that weigh columns */
    struct st_writer writer;
    double seconds; /* for the weights */
};

/* Observes everything and writes it through calibration->writer, which is left for the caller to finish. Returns an exit
 * code, complained about. */
int calibration_run(struct calibration *calibration, struct threads *threads);

/* The table for people. */
void calibration_print(const struct calibration *calibration);

/* Warnings on standard error: what a checkpoint would need and was not recorded. */
void calibration_warn(const struct calibration *calibration);

/* The JSON report, to be freed with free(); NULL: no memory. */
char *calibration_report(const struct calibration *calibration);

#endif
