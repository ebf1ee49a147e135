/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The layers of a checkpoint that are calibrated: their selection, their slices and the shapes of their scales. */
#ifndef QOBS_TOOLS_LAYERS_H
#define QOBS_TOOLS_LAYERS_H

#include "bases.h"
#include "select.h"

struct layer {
    const struct tensor_ref *ref;
    qobs_tensor tensor;
    size_t module; /* length of the module's part of the name */
    size_t group;  /* index of the first layer fused with it; its own index if it is not fused */
    qobs_dtype scale_dtype, zero_point_dtype; /* dtypes of the observer's results */
    const char *stored_scale;                 /* dtype of the scale in the checkpoint */
    int ndim;                                 /* dimensions of the stored scale */
    int64_t shape[QOBS_MAX_NDIM];
    int64_t qparams;
    bool sliced; /* rows are independent, in multiples of a unit */
    int64_t rows_per_unit, qparams_per_unit;

    size_t scale_index, zero_point_index, global_scale_index; /* indices in the output file */
    double amax;                                              /* largest magnitude of the layer, later of its group */
    double min_scale, max_scale;
    qobs_counts counts;

    qobs_search_report search; /* valid if the observer searches */
    uint64_t *candidates;      /* number of qparams that chose each candidate, then of those that chose none */
    const char *importance;    /* name of the recording that weights the columns; NULL: none */
};

/* Zero-initialize it. */
struct layers {
    struct layer *items;
    size_t count;
    size_t skipped; /* tensors selected by name whose dtype cannot be observed */
    uint64_t bytes;
};

/* Selects the weights of the model, in its order, and finds their groups. Fails if the settings do not fit a weight.
 * Returns an exit code. */
int layers_choose(struct layers *layers, const struct tensor_set *set, const struct selection *selection,
                  const struct base_observer *weights);

void layers_free(struct layers *layers);

#endif
