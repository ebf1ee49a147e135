/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Which scales and zero points the batches have given, and how often: Quark's power-of-two observers answer with the most
 * common, of equally common ones with the earliest. All channels of a batch are one vote. */
#ifndef QOBS_STATISTIC_VOTES_H
#define QOBS_STATISTIC_VOTES_H

#include "base/runtime.h"

struct mode_count {
    size_t n;                /* scales, and zero points, of a candidate */
    size_t candidates, workspace; /* held, and fitting in */
    uint64_t *count;         /* of each candidate */
    unsigned char *values;   /* of each n scales and n zero points; 4 bytes each */
};

/* Where candidate i's scales are, and its zero points. */
unsigned char *qobs_mode_scale(const struct mode_count *mode_count, size_t i);
unsigned char *qobs_mode_zero_point(const struct mode_count *mode_count, size_t i);

/* Room for that many more candidates of n scales each, so that casting cannot fail. */
int qobs_mode_reserve(const struct runtime *runtime, struct mode_count *mode_count, size_t n, size_t more, qobs_error *error);

/* Casts `count` votes for what has been written to the place of candidate votes->candidates. */
void qobs_mode_add(struct mode_count *mode_count, uint64_t count);

/* The winner's scales and zero points, of which either may be NULL; there is at least one candidate. */
void qobs_mode_read(const struct mode_count *mode_count, void *scale, void *zero_point);

void qobs_mode_release(const struct runtime *runtime, struct mode_count *mode_count);

#endif
