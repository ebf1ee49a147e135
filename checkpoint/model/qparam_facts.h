/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Facts about the scales and zero points of a whole weight in integers. */
#pragma once

#include "model/weights.h"

struct qparam_facts {
    bool usable;   /* scales are finite and none is 0 */
    bool negative; /* one is below 0 */
    int low, high; /* extremes of zero points, and 0 if there are none */
};

/* Fails if the files of the model cannot be borrowed. */
int weight_qparam_facts(const struct weight *w, struct qparam_facts *facts, struct fail *f);

/* Returns true if zero points lie in words that have no other bits. */
bool zero_points_fill_words(const struct weight *w);
