/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What qobs show has to show: a histogram, and the ranges an observer chose. */
#ifndef QOBS_TOOLS_CHART_H
#define QOBS_TOOLS_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fail.h"
#include "results.h"
#include "tensor_files.h"

struct span {
    double low, high;
};

struct chart {
    const char *title, *preset;
    size_t bins;
    uint64_t *counts;
    double first, last; /* edges; all bins are equally wide */
    uint64_t elements;  /* finite ones, all of which are in the histogram */
    uint64_t below, above;  /* of their own qparam's range: they are clipped */
    uint64_t nan, inf;
    size_t qparams;
    struct span narrowest, widest; /* of the ranges; the same where there is one */
    bool logarithmic;              /* bars by the logarithm of the counts */
};

/* What to make a chart of: tensors in the order in which they are observed. */
struct chart_source {
    const qobs_config *config;
    const qobs_runtime *runtime;
    const qobs_tensor *tensors;
    char **names; /* of the tensors, for messages */
    size_t count;
    int64_t qparam; /* only the elements of this one; -1: all */
};

/* Observes the tensors and counts them in chart->bins bins. Returns an exit code, complained about. chart_free in any case. */
int chart_make(struct chart *chart, const struct chart_source *source);
void chart_free(struct chart *chart);

/* The share of elements that are clipped. */
double chart_clipped(const struct chart *chart);

/* Length of bin i's bar, 0 to 1. */
double chart_bar(const struct chart *chart, uint64_t count, uint64_t most);

/* On standard output, as wide as the terminal. */
void chart_print(const struct chart *chart);
int chart_print_json(const struct chart *chart);

/* As a picture, SVG or PNG by the path's ending; it appears when it is complete. */
int chart_draw(const struct chart *chart, const char *path);
/* Is that a picture that can be drawn here? */
int chart_check_picture(const char *path);

#endif
