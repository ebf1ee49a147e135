/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One run of qobs_checkpoint_calibrate: a quantize run whose output is one file with scales. */
#pragma once

#include "calibrate/bases.h"
#include "quantize/run.h"

struct calibration {
    const qobs_checkpoint_calibrate_args *args;
    qobs_checkpoint_quantize_args quantize; /* the same arguments for the run */
    struct bases bases;
    struct st_writer writer;
    struct quantize_run *run;
    double seconds; /* time for the weights */
};

/* The modules that need scales of a kind of activations, and those that nothing was recorded for. */
struct kind_counts {
    size_t modules, missing;
    const struct activation_need *first_missing; /* NULL: none */
};
struct kind_counts count_kind(const struct calibration *c, enum activation_kind kind);

/* Returns the report as a JSON text, to be freed with free(). NULL: no memory. */
char *calibration_report(const struct calibration *c);
