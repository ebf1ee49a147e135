/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scale, zero point and global scale of an observer, and the ranges its rule finds in a histogram. */
#pragma once

#include "observer/observer.h"

/* The dtypes of scale and zero point for such a layout. `observed`: of ranges; else of upstream's answer without data.
 */
void qobs_qparam_dtypes(const qobs_observer *observer, const struct layout *layout, bool observed, qobs_dtype *scale,
                        qobs_dtype *zero_point);
struct shape qobs_scale_shape(const qobs_observer *observer);

/* Checks that scale and zero point of such a layout have these sizes in bytes. NULL: that size is not checked. */
int qobs_check_qparam_sizes(const qobs_observer *observer, const struct layout *layout, bool observed,
                            const size_t *scale_size, const size_t *zero_point_size, qobs_error *error);
int qobs_check_size(size_t size, const char *name, size_t expected, qobs_error *error);

/* Writes scale and zero point. Either may be NULL; with both the result says whether they exist. */
int qobs_write_qparams(const qobs_observer *observer, void *scale, void *zero_point, qobs_error *error);

/* The global scale, and whether its amax is known. */
float qobs_compute_global_scale(const qobs_observer *observer);
bool qobs_global_scale_is_known(const qobs_observer *observer);

/* Finds the range of every qparam in its histogram, and computes scale and zero point for it. Any output may be NULL.
 */
int qobs_find_ranges(const qobs_observer *observer, float *min, float *max, void *scale, void *zero_point,
                     qobs_error *error);

/* Copies a caller's structure, with the members it lacks as 0. */
int qobs_qparam_buffers_read(qobs_qparam_buffers *out, const qobs_qparam_buffers *given, qobs_error *error);

/* Upstream's percentile of an empty histogram is a list of one range. */
bool qobs_found_is_list(const qobs_observer *observer);
