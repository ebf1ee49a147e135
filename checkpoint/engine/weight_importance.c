/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Finds the importance of every weight that is searched. The vectors are read when a weight
 * is in work. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/engine_steps.h"
#include "files/text.h"

/* Returns true if no qparam of a group spans rows. */
static bool has_columns(const struct quant_group *group)
{
    const enum quant_strategy strategy = group->weights.strategy;
    return strategy == QUANT_CHANNEL || strategy == QUANT_GROUP || strategy == QUANT_TENSOR_GROUP;
}

/* Returns true if the columns of a weight can be weighed: its range is searched, and no qparam spans rows. */
static bool is_weighable(const struct engine *e, const struct weight *w)
{
    return w->reason == WEIGHT_TAKEN &&
           (e->groups[w->group].needs.searches_range || e->groups[w->group].needs.searches_scale) &&
           has_columns(&e->in.config->groups[w->group]);
}

/* Returns the number of searched weights; *weighted receives how many of them have importance. */
static size_t find_own(struct engine *e, struct weight_importance *of_weight, size_t *weighted)
{
    size_t searched = 0;
    *weighted = 0;
    for (size_t i = 0; i < e->in.weights->count; i++) {
        const struct weight *w = &e->in.weights->items[i];
        struct weight_importance *here = &of_weight[i];
        here->searched = is_weighable(e, w);
        here->weighted = here->searched && importance_find(e->in.importance, e->in.states, w->name, w->module,
                                                           e->groups[w->group].needs.hessian, &here->found);
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

static int check_given(const struct engine *e, size_t searched, size_t weighted, struct fail *f)
{
    if (e->in.importance->file_count + e->in.importance->recordings.count == 0 || weighted > 0)
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
static int check_strict(const struct engine *e, struct fail *f)
{
    for (size_t i = 0; i < e->job_count; i++) {
        const struct weight_job *job = &e->jobs[i];
        if (job->group && job->group->needs.importance_required && !job->weighted)
            return INVALID(f, "tensor '%.200s': importance: no activations have been observed, and strict is true",
                           job->weight->name);
    }
    return QOBS_OK;
}

/* Descent over codes needs a Hessian, at least of one weight; others keep the nearest codes, and are warned of. */
static int check_descent(const struct engine *e, struct fail *f)
{
    for (size_t i = 0; i < e->job_count && e->weighted == 0; i++)
        if (job_rounds(&e->jobs[i]))
            return INVALID(f, "rounding: descent needs states, or --importance FILE with inputs: " DESCENT_WAY);
    return QOBS_OK;
}

int engine_find_importance(struct engine *e, struct weight_importance *of_weight, struct fail *f)
{
    OWNED size_t *member = malloc((e->in.weights->count + 1) * sizeof *member);
    if (!member)
        return NO_MEMORY(f, "importance");
    const size_t searched = find_own(e, of_weight, &e->weighted);
    RETURN_IF_NOT_OK(check_given(e, searched, e->weighted, f));
    if (e->weighted > 0)
        share(e->in.weights, of_weight, member);
    return QOBS_OK;
}

int engine_check_importance(const struct engine *e, struct fail *f)
{
    RETURN_IF_NOT_OK(check_strict(e, f));
    return check_descent(e, f);
}

bool engine_lacks_importance(const struct engine *e, char *text, size_t size)
{
    for (size_t i = 0; i < e->job_count; i++) {
        const struct weight_group *group = e->jobs[i].group;
        if (!group || !group->needs.importance || (e->weighted > 0 && has_columns(group->quant)))
            continue;
        const char *preset = qobs_config_preset(group->config);
        if (has_columns(group->quant))
            snprintf(text, size,
                     "importance: %s weighs columns by the inputs of a layer, and there are none, so that all count "
                     "alike; --states DIR of libqobs.calibration, or --importance FILE",
                     preset);
        else
            snprintf(text, size,
                     "importance: %s weighs no columns under strategy %s, so that all count alike; channel, group and "
                     "tensor_group do",
                     preset, quant_strategy_name(group->quant->weights.strategy));
        return true;
    }
    return false;
}
