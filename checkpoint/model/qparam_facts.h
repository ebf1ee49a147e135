/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Facts about the scales and zero points of a whole weight in integers, and their move to rows. */
#pragma once

#include "model/weights.h"

struct qparam_facts {
    bool usable;   /* scales are finite and none is 0 */
    bool negative; /* one is below 0 */
    int low, high; /* extremes of zero points, and 0 if there are none */
};

/* Fails if the files of the model cannot be borrowed. */
int weight_qparam_facts(const struct weight *w, struct qparam_facts *facts, struct fail *f);

/* Write the scales of rows [first, first + count), `repeats` times each, in the dtype of the file, and the zero points.
 */
void weight_move_scales(const struct weight *w, int64_t first, int64_t count, int64_t repeats, void *scales);
void weight_move_zero_points(const struct weight *w, int64_t first, int64_t count, int64_t repeats,
                             signed char *zero_points);
