/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Which scales and zero points the batches have given, and how often: Quark's power-of-two observers answer with the most
 * common, of equally common ones with the earliest. All channels of a batch are one vote. */
#ifndef QOBS_STATISTIC_VOTES_H
#define QOBS_STATISTIC_VOTES_H

#include "base/runtime.h"

struct votes {
    size_t n;                /* scales, and zero points, of a candidate */
    size_t candidates, room; /* held, and fitting in */
    uint64_t *count;         /* of each candidate */
    unsigned char *values;   /* of each n scales and n zero points; 4 bytes each */
};

/* Where candidate i's scales are, and its zero points. */
unsigned char *qobs_vote_scale(const struct votes *votes, size_t i);
unsigned char *qobs_vote_zero_point(const struct votes *votes, size_t i);

/* Room for that many more candidates of n scales each, so that casting cannot fail. */
int qobs_votes_reserve(const struct runtime *runtime, struct votes *votes, size_t n, size_t more, qobs_error *error);

/* Casts `count` votes for what has been written to the place of candidate votes->candidates. */
void qobs_votes_cast(struct votes *votes, uint64_t count);

/* The winner's scales and zero points, of which either may be NULL; there is at least one candidate. */
void qobs_votes_read(const struct votes *votes, void *scale, void *zero_point);

void qobs_votes_release(const struct runtime *runtime, struct votes *votes);

#endif
