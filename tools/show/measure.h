/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Measures what a candidate of a comparison does to tensors. All functions return exit codes. */
#ifndef QOBS_TOOLS_SHOW_MEASURE_H
#define QOBS_TOOLS_SHOW_MEASURE_H

#include "show/chart.h"
#include "show/spans.h"

/* One observer. */
struct compared {
    char *name; /* its preset and the settings that differ from the defaults */
    char lacks[128]; /* keys of --set that it does not have */
    qobs_config *config;
    struct chart_source source; /* with this configuration */
    struct spans spans;
    struct results results;
    struct chart chart;
    double min_scale, max_scale;            /* of all qparams; NaN: it has none */
    double levels[MAX_GRID];                /* grid of the widest range */
    size_t level_count;                     /* 0: the format is wide or not known */
    double squared_error, energy;           /* sums over the elements; NaN: cannot be quantized here */
    double weighted_error, weighted_energy; /* the same, weighted by the mean squares of the columns' activations */
};

/* The mean square of the activations of each column. */
struct column_weights {
    double *items; /* NULL: there are no activations */
    int64_t count;
};

/* Computes the weights from source->importance. Fails if they do not fit the tensors. */
int column_weights_make(struct column_weights *weights, const struct chart_source *source);
void column_weights_free(struct column_weights *weights);

/* Sets scales, grid and errors of a candidate. Its results are read, and its chart is made. */
int measure_candidate(struct compared *candidate, const struct column_weights *weights);

#endif
