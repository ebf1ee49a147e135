/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The mode, or most frequent value, of the scales and zero points of all batches: the result of Quark's power-of-two
 * observers. The earliest of equally frequent candidates is the mode. All channels of a batch together are one
 * candidate. */
#pragma once

#include "base/runtime.h"

struct mode_count {
    size_t n; /* scales, and zero points, of a candidate */
    size_t candidates;
    size_t workspace;      /* candidates there is memory for */
    uint64_t *count;       /* [workspace] batches that gave a candidate */
    unsigned char *values; /* [workspace] n scales, then n zero points, 4 bytes each */
};

/* The scales and the zero points of candidate i. */
unsigned char *qobs_mode_scale(const struct mode_count *mode_count, size_t i);
unsigned char *qobs_mode_zero_point(const struct mode_count *mode_count, size_t i);

/* Memory for that many more candidates of n scales each, so that qobs_mode_add cannot fail. */
int qobs_mode_reserve(const struct runtime *runtime, struct mode_count *mode_count, size_t n, size_t more,
                      qobs_error *error);

/* Adds `count` to the frequency of the values that have been written to candidate mode_count->candidates. */
void qobs_mode_add(struct mode_count *mode_count, uint64_t count);

/* Copies the mode's scales and zero points. Either may be NULL; there is at least one candidate. */
void qobs_mode_read(const struct mode_count *mode_count, void *scale, void *zero_point);

void qobs_mode_release(const struct runtime *runtime, struct mode_count *mode_count);
