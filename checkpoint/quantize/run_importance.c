/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Finds the importance of every weight that is searched, whichever part writes it. The vectors are read when a weight
 * is in work. */
#include <stdio.h>
#include <stdlib.h>

#include "files/text.h"
#include "quantize/run.h"

/* The importance of one weight. */
struct weight_importance {
    bool searched; /* its range is searched, and columns can be weighed */
    bool weighted;
    struct importance_found found;
};

/* Returns true if no qparam of a group spans rows. */
static bool has_columns(const struct quant_group *group)
{
    const enum quant_strategy strategy = group->weights.strategy;
    return strategy == QUANT_CHANNEL || strategy == QUANT_GROUP || strategy == QUANT_TENSOR_GROUP;
}

/* Returns true if the columns of a weight can be weighed: its range is searched, and no qparam spans rows. */
static bool is_weighable(const struct quantize_run *run, const struct weight *w)
{
    return w->reason == WEIGHT_TAKEN &&
           (run->plans[w->group].needs.searches_range || run->plans[w->group].needs.searches_scale) &&
           has_columns(&run->config.groups[w->group]);
}

/* Returns the number of searched weights; *weighted receives how many of them have importance. */
static size_t find_own(struct quantize_run *run, struct weight_importance *of_weight, size_t *weighted)
{
    size_t searched = 0;
    *weighted = 0;
    for (size_t i = 0; i < run->weights.count; i++) {
        const struct weight *w = &run->weights.items[i];
        struct weight_importance *here = &of_weight[i];
        here->searched = is_weighable(run, w);
        here->weighted = here->searched && importance_find(&run->importance, &run->activations.sources.states, w->name,
                                                           w->module, run->plans[w->group].needs.hessian, &here->found);
        searched += here->searched;
        *weighted += here->weighted;
    }
    return searched;
}

/* Gives weights without importance that of another one with the same input. */
static void share(const struct weights *weights, struct weight_importance *of_weight, size_t *member)
{
    for (size_t i = 0; i < weights->count; i++)
        member[i] = SIZE_MAX;
    for (size_t i = 0; i < weights->count; i++)
        if (of_weight[i].weighted)
            member[weights->items[i].set] = i;
    for (size_t i = 0; i < weights->count; i++) {
        const size_t other = member[weights->items[i].set];
        if (!of_weight[i].searched || of_weight[i].weighted || other == SIZE_MAX ||
            weights->items[other].shape[1] != weights->items[i].shape[1])
            continue;
        of_weight[i].found = of_weight[other].found;
        of_weight[i].weighted = true;
    }
}

static int check_given(const struct quantize_run *run, size_t searched, size_t weighted, struct fail *f)
{
    if (run->args->importance_count == 0 || weighted > 0)
        return QOBS_OK;
    if (searched == 0)
        return INVALID(f,
                       "importance: no weight of this run is searched with columns that can be weighed; presets with "
                       "mse in their name (llmc.imatrix_mse) and qobs.* search, strategies are channel, group and "
                       "tensor_group");
    return INVALID(f,
                   "importance: there is none for any of %zu weights; they are named <module>.input, or in files of "
                   "llama.cpp blk.0.attn_q.weight and so on",
                   searched);
}

/* Upstream's strict observers refuse what others search without weights. */
static int check_strict(const struct quantize_run *run, struct fail *f)
{
    for (size_t i = 0; i < run->job_count; i++) {
        const struct weight_job *job = &run->jobs[i];
        if (job->plan && job->plan->needs.importance_required && !job->weighted)
            return INVALID(f, "tensor '%.200s': importance: no activations have been observed, and strict is true",
                           job->weight->name);
    }
    return QOBS_OK;
}

/* Descent over codes needs a Hessian, at least of one weight; others keep the nearest codes, and are warned of. */
static int check_descent(const struct quantize_run *run, size_t weighted, struct fail *f)
{
    for (size_t i = 0; i < run->job_count && weighted == 0; i++)
        if (run->jobs[i].plan && run->jobs[i].plan->descends)
            return INVALID(f, "rounding: descent needs states, or --importance FILE with inputs: " DESCENT_WAY);
    return QOBS_OK;
}

int run_find_importance(struct quantize_run *run, struct fail *f)
{
    const size_t count = run->weights.count;
    OWNED struct weight_importance *of_weight = calloc(count + 1, sizeof *of_weight);
    OWNED size_t *member = malloc((count + 1) * sizeof *member);
    size_t weighted = 0;
    if (!of_weight || !member)
        return NO_MEMORY(f, "importance");
    const size_t searched = find_own(run, of_weight, &weighted);
    run->weighted = weighted;
    RETURN_IF_NOT_OK(check_given(run, searched, weighted, f));
    if (weighted > 0) {
        share(&run->weights, of_weight, member);
        for (size_t i = 0; i < run->job_count; i++) {
            run->jobs[i].weighted = of_weight[run->jobs[i].index].weighted;
            run->jobs[i].importance = of_weight[run->jobs[i].index].found;
        }
    }
    RETURN_IF_NOT_OK(check_strict(run, f));
    return check_descent(run, weighted, f);
}

bool run_lacks_importance(const struct quantize_run *run, char *text, size_t size)
{
    for (size_t i = 0; i < run->job_count; i++) {
        const struct group_plan *plan = run->jobs[i].plan;
        if (!plan || !plan->needs.importance || (run->weighted > 0 && has_columns(plan->group)))
            continue;
        const char *preset = qobs_config_preset(plan->config);
        if (has_columns(plan->group))
            snprintf(text, size,
                     "importance: %s weighs columns by the inputs of a layer, and there are none, so that all count "
                     "alike; --states DIR of libqobs.calibration, or --importance FILE",
                     preset);
        else
            snprintf(text, size,
                     "importance: %s weighs no columns under strategy %s, so that all count alike; channel, group and "
                     "tensor_group do",
                     preset, quant_strategy_name(plan->group->weights.strategy));
        return true;
    }
    return false;
}
