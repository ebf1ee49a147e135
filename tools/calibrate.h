/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What qobs calibrate knows about a checkpoint's layers. */
#ifndef QOBS_TOOLS_CALIBRATE_H
#define QOBS_TOOLS_CALIBRATE_H

#include "program.h"
#include "scheme.h"

struct layer {
    const struct tensor_ref *ref;
    qobs_tensor tensor;
    size_t module; /* length of the module's part of the name */
    qobs_dtype scale_dtype, zero_point_dtype; /* as observed */
    const char *stored_scale;                 /* dtype of the scale in the checkpoint */
    int ndim; /* of the scale as it is written */
    int64_t shape[QOBS_MAX_NDIM];
    int64_t qparams;
    size_t scale_index, zero_point_index, global_scale_index; /* in the output file */
    double amax;                                              /* of the layer, or of those it shares a global scale with */
    bool sliced;                          /* rows can be done apart, in multiples of a unit */
    int64_t rows_per_unit, qparams_per_unit;
    double least_scale, greatest_scale;
};

struct calibration {
    const char *model, *out, *report, *preset;
    const struct scheme *scheme;
    struct layer *layers;
    size_t count;
    size_t skipped; /* selected by name, but of a dtype that cannot be observed */
    bool zero_points, global_scales;
    double seconds;
    uint64_t bytes;
};

/* Observes every layer and writes calibration->out. Returns an exit code; unless it is EXIT_OK nothing has been written. */
int calibration_run(struct calibration *calibration, const qobs_config *config, struct threads *threads);

/* The table for people. */
void calibration_print(const struct calibration *calibration);

/* The JSON report in calibration->report. Returns an exit code. */
int calibration_write_report(const struct calibration *calibration);

#endif
