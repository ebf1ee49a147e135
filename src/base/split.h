/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Splitting work for threads. Work consists of units that are not divided: rows, entries of an axis, batches of
 * qparams. A split makes contiguous parts of them, each a task of the executor.
 *
 * One thread, or little work, gets one part. Otherwise each thread gets `parts_per_thread`, as far as the limits allow;
 * more than one balances threads of unequal speed. A task runs at any time on any thread. So a part writes to outputs
 * no other part writes to, or to private outputs. The caller merges private outputs afterwards, in the order of the
 * parts. The number of parts depends on the number of threads. A result that depends on the order of its operations,
 * such as a sum of floats, needs parts of a fixed size instead (qobs_split_size). */
#pragma once

#include "base/runtime.h"

enum { SPLIT_MAX_PARTS = 64 }; /* of most rules, so that a caller may have an array of parts on its stack */

/* The limits of one kind of work. Amounts of work are bytes or elements, as the caller likes. */
struct split_rule {
    int64_t min_total; /* less work than this is one part */
    int64_t min_part;  /* work of a part, on average; 0: no limit */
    int64_t parts_per_thread;
    int64_t max_parts;
    /* The parts get smaller towards the last one, so that threads end together: the first p of n parts have
     * 1 - (1 - p/n)^2 of the units. If there are fewer than two units a part, parts are equal. */
    bool shrinking;
};

struct split {
    int64_t units, parts; /* parts: at least 1 */
    bool shrinking;
};

/* The split of `units` units of `work` in all. `private_work` is the work to initialise and merge the private outputs
 * of one part, 0 without; if it is above 1/4096 of `work`, a thread gets one part. Parts of equal size have at least
 * one unit; the last ones of shrinking parts may be empty. */
struct split qobs_split(const struct runtime *runtime, const struct split_rule *rule, int64_t units, int64_t work,
                        int64_t private_work);

/* The first unit of a part; part == parts: the end of the last one. */
int64_t qobs_split_begin(const struct split *split, int64_t part);

/* Runs task(argument, part, from, to) for each part with its units [from, to), in the floating-point mode of results,
 * and returns when all have ended. A single part runs on the calling thread. */
typedef void split_task(void *argument, int64_t part, int64_t from, int64_t to);
void qobs_split_run(const struct runtime *runtime, const struct split *split, split_task *task, void *argument);

/* The units of each of at most max_parts parts of equal size but the last, whatever the number of threads: at least
 * min_size and a multiple of `multiple`. */
int64_t qobs_split_size(int64_t units, int64_t max_parts, int64_t min_size, int64_t multiple);
