/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The ranges that an observer's rule finds in its histograms. */
#ifndef QOBS_FOUND_RANGE_H
#define QOBS_FOUND_RANGE_H

#include "observer/observer.h"

/* Finds the range of every qparam, and computes scale and zero point for it. Any output may be NULL. */
int qobs_find_ranges(const qobs_observer *observer, float *min, float *max, void *scale, void *zero_point, qobs_error *error);

void qobs_histogram_edges(const struct histogram *histogram, float *edges); /* bins + 1 */
bool qobs_histogram_is_empty(const struct histogram *histogram);

#endif
