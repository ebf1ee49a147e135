/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "measure/mode.h"

#include <string.h>

#include "base/error.h"

enum { VALUE = 4 };

unsigned char *qobs_vote_scale(const struct votes *votes, size_t i)
{
    return votes->values + i * votes->n * 2 * VALUE;
}

unsigned char *qobs_vote_zero_point(const struct votes *votes, size_t i)
{
    return qobs_vote_scale(votes, i) + votes->n * VALUE;
}

/* Counts and values lie in one piece of memory. */
static size_t size_of(size_t n, size_t room)
{
    return room * (sizeof(uint64_t) + n * 2 * VALUE);
}

int qobs_votes_reserve(const struct runtime *runtime, struct votes *votes, size_t n, size_t more, qobs_error *error)
{
    if (votes->candidates + more <= votes->room)
        return QOBS_OK;
    const size_t room = 2 * votes->candidates + more, size = size_of(n, room);
    uint64_t *count = qobs_allocate_state(runtime, size);
    if (!count)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes of votes", size);
    struct votes wider = {
        .n = n, .candidates = votes->candidates, .room = room, .count = count, .values = (unsigned char *)(count + room)};
    if (votes->candidates > 0) {
        memcpy(wider.count, votes->count, votes->candidates * sizeof *count);
        memcpy(wider.values, votes->values, votes->candidates * n * 2 * VALUE);
    }
    qobs_votes_release(runtime, votes);
    *votes = wider;
    return QOBS_OK;
}

void qobs_votes_cast(struct votes *votes, uint64_t count)
{
    const size_t last = votes->candidates;
    for (size_t i = 0; i < last; i++)
        if (memcmp(qobs_vote_scale(votes, i), qobs_vote_scale(votes, last), votes->n * 2 * VALUE) == 0) {
            votes->count[i] += count;
            return;
        }
    votes->count[last] = count;
    votes->candidates++;
}

void qobs_votes_read(const struct votes *votes, void *scale, void *zero_point)
{
    size_t winner = 0;
    for (size_t i = 1; i < votes->candidates; i++)
        if (votes->count[i] > votes->count[winner])
            winner = i;
    if (scale)
        memcpy(scale, qobs_vote_scale(votes, winner), votes->n * VALUE);
    if (zero_point)
        memcpy(zero_point, qobs_vote_zero_point(votes, winner), votes->n * VALUE);
}

void qobs_votes_release(const struct runtime *runtime, struct votes *votes)
{
    if (votes->count)
        qobs_release(runtime, votes->count, size_of(votes->n, votes->room));
    *votes = (struct votes){0};
}
