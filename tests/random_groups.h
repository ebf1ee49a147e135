/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Random numbers for groups of weights; `rng` is the seed. */
#ifndef QOBS_TEST_RANDOM_GROUPS_H
#define QOBS_TEST_RANDOM_GROUPS_H

#include <stddef.h>
#include <stdint.h>

static uint64_t rng = 1;

static uint64_t next_random(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng;
}

static size_t below(size_t n) { return (size_t)(next_random() >> 11) % n; }
static double unit(void) { return (double)(next_random() >> 11) * 0x1p-53; }

/* Nearly normal: the sum of 12 uniform numbers. */
static double gauss(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += unit();
    return sum;
}

#endif
