/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Finds the importance of every weight that is searched. The vectors are read when a weight is in work. */
#include <stdlib.h>

#include "quantize/run.h"

/* Whether searches of this granularity can weigh columns. */
static bool can_weigh(const struct group_plan *plan)
{
    const enum quant_strategy strategy = plan->group->weights.strategy;
    return strategy == QUANT_CHANNEL || strategy == QUANT_GROUP || strategy == QUANT_TENSOR_GROUP;
}

/* A layer without importance has that of one that vLLM fuses with it, since their inputs are the same. */
static void share_importance(struct quantize_run *run, struct weight_job **of_set)
{
    for (size_t i = 0; i < run->job_count; i++)
        if (run->jobs[i].weighted)
            of_set[run->layout.set[run->jobs[i].index]] = &run->jobs[i];
    for (size_t i = 0; i < run->job_count; i++) {
        struct weight_job *job = &run->jobs[i], *other = of_set[run->layout.set[job->index]];
        if (job->weighted || !other || !job->plan || !job->plan->searches || !can_weigh(job->plan) ||
            other->weight->shape[1] != job->weight->shape[1])
            continue;
        job->importance = other->importance;
        job->weighted = true;
    }
}

int run_find_importance(struct quantize_run *run, struct fail *f)
{
    const char *observer = NULL;
    size_t searched = 0, weighted = 0;
    for (size_t i = 0; i < run->job_count; i++) {
        struct weight_job *job = &run->jobs[i];
        if (!job->plan)
            continue;
        observer = observer ? observer : job->plan->group->weights.observer;
        if (!job->plan->searches || !can_weigh(job->plan))
            continue;
        searched++;
        job->weighted = importance_find(&run->importance, &run->activations.sources.states, job->weight->name,
                                        job->weight->module, &job->importance);
        weighted += job->weighted;
    }
    if (run->args->importance_count > 0 && searched == 0)
        return INVALID(f,
                       "importance: observer %.60s does not weigh columns here; presets with mse in their name do, with "
                       "strategies channel, group and tensor_group",
                       observer ? observer : "minmax");
    if (run->args->importance_count > 0 && weighted == 0)
        return INVALID(f, "importance: there is none for any of %zu weights; they are named <module>.input, or in files of "
                          "llama.cpp blk.0.attn_q.weight and so on",
                       searched);
    struct weight_job **of_set = calloc(run->weights.count + 1, sizeof *of_set);
    if (!of_set)
        return NO_MEMORY(f, "importance");
    share_importance(run, of_set);
    free(of_set);
    return QOBS_OK;
}
