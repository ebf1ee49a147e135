/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The splitter of split.h. It rounds part boundaries down, so that parts differ by at most one unit unless they shrink.
 */
#include "base/split.h"

#include "base/fpenv.h"

enum { MIN_WORK_PER_PRIVATE_WORK = 4096 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

struct split qobs_split(const struct runtime *runtime, const struct split_rule *rule, int64_t units, int64_t work,
                        int64_t private_work)
{
    const int64_t threads = (int64_t)qobs_threads(runtime);
    struct split split = {units, 1, rule->shrinking};
    if (threads == 1 || work < rule->min_total)
        return split;
    int64_t parts = threads * (private_work <= work / MIN_WORK_PER_PRIVATE_WORK ? rule->parts_per_thread : 1);
    if (rule->min_part > 0)
        parts = smaller(parts, work / rule->min_part);
    parts = smaller(smaller(parts, rule->max_parts), units);
    split.parts = parts > 1 ? parts : 1;
    return split;
}

int64_t qobs_split_begin(const struct split *s, int64_t part)
{
    const int64_t n = s->parts;
    const bool equal = !s->shrinking || s->units < 2 * n;
    const int64_t before = equal ? part : part * (2 * n - part), all = equal ? n : n * n;
    return s->units / all * before + s->units % all * before / all; /* units * before may overflow */
}

struct split_call {
    const struct split *split;
    split_task *task;
    void *argument;
};

static void run_part(void *argument, size_t index)
{
    const struct split_call *c = argument;
    const int64_t part = (int64_t)index;
    FP_SCOPE;
    c->task(c->argument, part, qobs_split_begin(c->split, part), qobs_split_begin(c->split, part + 1));
}

void qobs_split_run(const struct runtime *runtime, const struct split *split, split_task *task, void *argument)
{
    struct split_call call = {split, task, argument};
    qobs_parallel_for(runtime, run_part, &call, (size_t)split->parts);
}

int64_t qobs_split_size(int64_t units, int64_t max_parts, int64_t min_size, int64_t multiple)
{
    const int64_t equal = units / max_parts + (units % max_parts != 0), size = equal > min_size ? equal : min_size;
    return (size + multiple - 1) / multiple * multiple;
}
