/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The layers of a checkpoint that are calibrated: which, how they are sliced, and what their scales look like. */
#ifndef QOBS_TOOLS_LAYERS_H
#define QOBS_TOOLS_LAYERS_H

#include "bases.h"
#include "select.h"

struct layer {
    const struct tensor_ref *ref;
    qobs_tensor tensor;
    size_t module; /* length of the module's part of the name */
    size_t group;  /* the first of the layers that run as one with it; its own index where there are no others */
    qobs_dtype scale_dtype, zero_point_dtype; /* as observed */
    const char *stored_scale;                 /* dtype of the scale in the checkpoint */
    int ndim; /* of the scale as it is written */
    int64_t shape[QOBS_MAX_NDIM];
    int64_t qparams;
    bool sliced; /* rows can be done apart, in multiples of a unit */
    int64_t rows_per_unit, qparams_per_unit;

    size_t scale_index, zero_point_index, global_scale_index; /* in the output file */
    double amax; /* of the layer, then of its group */
    double least_scale, greatest_scale;
    qobs_counts counts;

    qobs_search_report search;  /* where the observer searches */
    uint64_t *candidates;       /* how often each of its steps was taken, then how often none */
    const char *importance;     /* the recorded tensor that weighs the columns, if any */
};

/* Zero it first. */
struct layers {
    struct layer *items;
    size_t count;
    size_t skipped; /* selected by name, but of a dtype that cannot be observed */
    uint64_t bytes;
};

/* The selected weights of the model, in its order. Refuses what the settings do not fit. Returns an exit code, complained
 * about. */
int layers_choose(struct layers *layers, const struct tensor_set *set, const struct selection *selection,
                  const struct base_observer *weights);

void layers_free(struct layers *layers);

#endif
