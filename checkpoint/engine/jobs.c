/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The order of work: how groups are quantized, which weights are jobs, in which order they are read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_steps.h"
#include "files/text.h"
#include "model/fused.h"

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

static int make_group(struct weight_group *g, const struct quant_group *quant, qobs_compat compat, struct fail *f)
{
    struct fail inner = {0};
    qobs_error error = {0};
    *g = (struct weight_group){
        .quant = quant, .format = quant_format_row(quant->format), .needs.struct_size = sizeof g->needs};
    const int status = quant_args_config(&quant->weights, quant_release_of(compat)->observers, &g->config, &inner);
    if (status != QOBS_OK && strstr(inner.message, "'rounding' is no setting"))
        return report_failure(f, status, "%.40s: rounding belongs to qobs.local_hessian: " DESCENT_WAY, quant->name);
    if (status != QOBS_OK)
        return report_failure(f, status, "%s: weights: %s", quant->name, inner.message);
    if (qobs_config_get_needs(g->config, &g->needs, &error) != QOBS_OK)
        return report_failure(f, error.status, "%s: weights: %s", quant->name, error.message);
    return QOBS_OK;
}

/* ---- Sets -------------------------------------------------------------------------------------------------------- */

/* Finds the first of the weights that share a scale with each. llm-compressor gives the fused ones of its rules one
 * global scale, whatever the architecture. */
static int find_sets(struct engine *e, struct fail *f)
{
    const struct weights *all = e->in.weights;
    const struct quant_config *config = e->in.config;
    bool global = false;
    for (size_t i = 0; i < all->count; i++) {
        const struct weight *w = &all->items[i];
        const struct quant_args *a = w->reason == WEIGHT_TAKEN ? &config->groups[w->group].weights : NULL;
        e->set[i] = a && shares_scale(a, config->compat) ? w->set : i;
    }
    for (size_t i = 0; i < config->group_count; i++)
        global |= config->groups[i].weights.strategy == QUANT_TENSOR_GROUP;
    if (config->compat == QOBS_COMPAT_VLLM || !global)
        return QOBS_OK;
    OWNED const char **names = malloc((all->count + 1) * sizeof *names);
    if (!names)
        return NO_MEMORY(f, "the names");
    for (size_t i = 0; i < all->count; i++)
        names[i] = all->items[i].name;
    return fused_sets(names, all->count, quant_release_of(config->compat)->fused, NULL, e->set, f);
}

/* ---- Jobs -------------------------------------------------------------------------------------------------------- */

static int fill_job(struct weight_job *job, const struct engine *e, size_t index,
                    const struct weight_importance *importance, struct fail *f)
{
    const struct weight *w = &e->in.weights->items[index];
    *job = (struct weight_job){.weight = w,
                               .index = index,
                               .unit_rows = weight_rows_at_once(w),
                               .cast = e->cast[index],
                               .weighted = importance->weighted,
                               .importance = importance->found,
                               .range = {.min = INFINITY, .max = -INFINITY}};
    if (w->reason == WEIGHT_TAKEN) {
        int64_t shape[2];
        job->group = &e->groups[w->group];
        const struct quant_args *a = job_args(job);
        const int ndim = scale_shape(a, w->shape, shape);
        job->unit_rows = ndim == 1 ? w->shape[0] : a->strategy == QUANT_BLOCK ? a->block_structure[0] : 1;
        job->unit_qparams = ndim == 1 ? 1 : shape[1];
    }
    RETURN_IF_NOT_OK(e->sink->functions->wants(e->sink, job, &job->wants, f));
    if (e->sink->functions->move && job->wants & WANTS_CODES)
        job_find_moves(job);
    return QOBS_OK;
}

/* Place of a weight in the input, to read it in order; a set stays together at its first member. */
struct place {
    size_t set_shard, set, shard, index;
    const unsigned char *set_data, *data;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *s = a, *t = b;
    const int orders[] = {
        ORDER(s->set_shard, t->set_shard), ORDER(s->set_data, t->set_data), ORDER(s->set, t->set),
        ORDER(s->shard, t->shard),         ORDER(s->data, t->data),         ORDER(s->index, t->index)};
    size_t i = 0;
    while (i + 1 < sizeof orders / sizeof *orders && orders[i] == 0)
        i++;
    return orders[i];
}

/* Makes a job of each weight that the sink wants, and of those whose range its set needs. */
static int make_jobs(struct engine *e, const struct weight_importance *importance, struct fail *f)
{
    const struct weights *all = e->in.weights;
    OWNED struct place *places = malloc((all->count + 1) * sizeof *places);
    OWNED bool *wanted_set = calloc(all->count + 1, sizeof *wanted_set);
    e->jobs = calloc(all->count + 1, sizeof *e->jobs);
    if (!places || !e->jobs || !wanted_set)
        return NO_MEMORY(f, "the list of tensors");
    for (size_t i = 0; i < all->count; i++) {
        const struct weight *w = &all->items[i], *leader = &all->items[e->set[i]];
        places[i] = (struct place){.set_shard = leader->source->shard,
                                   .set_data = leader->data,
                                   .set = e->set[i],
                                   .shard = w->source->shard,
                                   .data = w->data,
                                   .index = i};
    }
    qsort(places, all->count, sizeof *places, compare_places);
    for (size_t i = 0; i < all->count; i++) {
        RETURN_IF_NOT_OK(fill_job(&e->jobs[i], e, places[i].index, &importance[places[i].index], f));
        wanted_set[e->set[e->jobs[i].index]] |= e->jobs[i].wants != 0;
    }
    for (size_t i = 0; i < all->count; i++) {
        const struct weight_job *job = &e->jobs[i];
        const bool shares = job->group && shares_scale(job_args(job), e->in.config->compat);
        if (job->wants || (shares && wanted_set[e->set[job->index]]))
            e->jobs[e->job_count++] = *job;
    }
    return QOBS_OK;
}

/* Adds the work of all jobs to the meter. */
static void count_work(struct engine *e)
{
    for (size_t i = 0; i < e->job_count; i++) {
        const struct search_work work = job_search_work(e, &e->jobs[i]);
        e->meter->total += job_bytes(&e->jobs[i]);
        e->meter->search += work.scales + work.codes;
    }
}

int engine_open(struct engine *e, const struct engine_input *in, struct sink *sink, struct meter *meter, struct fail *f)
{
    const size_t count = in->weights->count, groups = in->config->group_count;
    OWNED struct weight_importance *importance = calloc(count + 1, sizeof *importance);
    *e = (struct engine){.in = *in, .sink = sink, .meter = meter};
    pthread_mutex_init(&e->pass.lock, NULL);
    e->groups = calloc(groups + 1, sizeof *e->groups);
    e->set = malloc((count + 1) * sizeof *e->set);
    if (!e->groups || !e->set || !importance)
        return NO_MEMORY(f, "the weights");
    for (size_t i = 0; i < groups; i++)
        RETURN_IF_NOT_OK(make_group(&e->groups[i], &in->config->groups[i], in->config->compat, f));
    RETURN_IF_NOT_OK(find_sets(e, f));
    RETURN_IF_NOT_OK(engine_find_casts(e, f));
    RETURN_IF_NOT_OK(engine_find_importance(e, importance, f));
    RETURN_IF_NOT_OK(make_jobs(e, importance, f));
    RETURN_IF_NOT_OK(engine_check_importance(e, f));
    count_work(e);
    return QOBS_OK;
}
