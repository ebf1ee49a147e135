/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The ranges that an observer chooses for tensors. */
#ifndef QOBS_TOOLS_SHOW_SPANS_H
#define QOBS_TOOLS_SHOW_SPANS_H

#include "qobs/format.h"
#include "qobs/plan.h"
#include "results.h"

struct span {
    double low, high;
};

/* The range of each qparam. Zero-initialize it. */
struct spans {
    struct span *items;
    size_t count;
};

/* The tensors that are shown, and an observer for them. Tensors are observed in this order. */
struct chart_source {
    const qobs_config *config;
    const qobs_runtime *runtime;
    const qobs_tensor *tensors;
    char **names; /* names of the tensors, for messages */
    size_t count;
    int64_t qparam;                /* index of the qparam whose elements are shown; -1: all elements */
    const qobs_tensor *importance; /* activations that weigh the columns, for observers that use them */
    size_t importance_count;
};

/* Observes the tensors. Gives the ranges and all results. Returns an exit code. */
int spans_observe(struct spans *spans, struct results *results, const struct chart_source *source);
void spans_free(struct spans *spans);

/* A plan that is destroyed when the block of its variable ends. */
#define OWNED_PLAN __attribute__((cleanup(plan_release)))
void plan_release(qobs_plan **plan);

/* Returns the number of elements of a tensor. */
int64_t elements_of(const qobs_tensor *t);

/* ---- The numbers that a quantized element can have --------------------------------------------------------------- */

/* Returns the number format that the settings of a configuration mean. NULL: not known. */
const qobs_format *grid_format(const qobs_config *config);

/* Writes the numbers (code - zero_point) * scale of all codes of a format of at most 8 bits, in ascending order, and
 * returns their number; 0 for wider formats. Settings that leave out codes (quant_min, quant_max, reduce_range) do. */
enum { MAX_GRID = 256 };
size_t grid_levels(const qobs_config *config, double scale, double zero_point, double levels[MAX_GRID]);

#endif
