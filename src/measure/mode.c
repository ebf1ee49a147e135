/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "measure/accumulators.h"

#include <string.h>

#include "base/error.h"

enum { VALUE = 4 }; /* bytes */

unsigned char *qobs_mode_scale(const struct mode_count *mode_count, size_t i)
{
    return mode_count->values + i * mode_count->n * 2 * VALUE;
}

unsigned char *qobs_mode_zero_point(const struct mode_count *mode_count, size_t i)
{
    return qobs_mode_scale(mode_count, i) + mode_count->n * VALUE;
}

/* Bytes of the one block that holds counts and values. */
static size_t size_of(size_t n, size_t workspace) { return workspace * (sizeof(uint64_t) + n * 2 * VALUE); }

int qobs_mode_reserve(const struct runtime *runtime, struct mode_count *mode_count, size_t n, size_t more,
                      qobs_error *error)
{
    if (mode_count->candidates + more <= mode_count->workspace)
        return QOBS_OK;
    const size_t workspace = 2 * mode_count->candidates + more, size = size_of(n, workspace);
    uint64_t *count = qobs_allocate_state(runtime, size);
    if (!count)
        return qobs_no_memory(error, "observer: no memory for %zu bytes of scales", size);
    struct mode_count wider = {.n = n,
                               .candidates = mode_count->candidates,
                               .workspace = workspace,
                               .count = count,
                               .values = (unsigned char *)(count + workspace)};
    if (mode_count->candidates > 0) {
        memcpy(wider.count, mode_count->count, mode_count->candidates * sizeof *count);
        memcpy(wider.values, mode_count->values, mode_count->candidates * n * 2 * VALUE);
    }
    qobs_mode_release(runtime, mode_count);
    *mode_count = wider;
    return QOBS_OK;
}

void qobs_mode_add(struct mode_count *mode_count, uint64_t count)
{
    const size_t last = mode_count->candidates;
    for (size_t i = 0; i < last; i++)
        if (memcmp(qobs_mode_scale(mode_count, i), qobs_mode_scale(mode_count, last), mode_count->n * 2 * VALUE) == 0) {
            mode_count->count[i] += count;
            return;
        }
    mode_count->count[last] = count;
    mode_count->candidates++;
}

void qobs_mode_read(const struct mode_count *mode_count, void *scale, void *zero_point)
{
    size_t mode = 0;
    for (size_t i = 1; i < mode_count->candidates; i++)
        if (mode_count->count[i] > mode_count->count[mode])
            mode = i;
    if (scale)
        memcpy(scale, qobs_mode_scale(mode_count, mode), mode_count->n * VALUE);
    if (zero_point)
        memcpy(zero_point, qobs_mode_zero_point(mode_count, mode), mode_count->n * VALUE);
}

void qobs_mode_release(const struct runtime *runtime, struct mode_count *mode_count)
{
    if (mode_count->count)
        qobs_release(runtime, mode_count->count, size_of(mode_count->n, mode_count->workspace));
    *mode_count = (struct mode_count){0};
}
