/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The order of work: how groups are quantized, which weights are jobs, in which order they are read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quantize/run.h"
#include "files/text.h"

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

static int make_plan(struct group_plan *plan, const struct quant_group *group, qobs_compat compat,
                     enum layout_contents contents, struct fail *f)
{
    struct quant_args weights = group->weights;
    struct fail inner = {0};
    qobs_error error = {0};
    plan->group = group;
    plan->storage = group_storage(group, contents);
    plan->needs.struct_size = sizeof plan->needs;
    if (contents == CONTENTS_SCALES && weights.observer && strcmp(weights.observer, "static_mse") == 0)
        weights.observer = "mse"; /* config.json has the other name, under which no observer is registered */
    const int status = quant_args_config(&weights, quant_release_of(compat)->observers, &plan->config, &inner);
    if (status != QOBS_OK && strstr(inner.message, "'rounding' is no setting"))
        return report_failure(f, status, "%.40s: rounding belongs to qobs.local_hessian: " DESCENT_WAY, group->name);
    if (status != QOBS_OK)
        return report_failure(f, status, "%s: weights: %s", group->name, inner.message);
    if (qobs_config_describe(plan->config, &plan->needs, &error) != QOBS_OK)
        return report_failure(f, error.status, "%s: weights: %s", group->name, error.message);
    char rounding[16] = "";
    plan->descends = contents == CONTENTS_MODEL &&
                     qobs_config_get(plan->config, "rounding", rounding, sizeof rounding, NULL) == QOBS_OK &&
                     strcmp(rounding, "descent") == 0;
    return QOBS_OK;
}

/* ---- Jobs -------------------------------------------------------------------------------------------------------- */

static void fill_job(struct weight_job *job, struct quantize_run *run, size_t index)
{
    const struct weight *w = &run->weights.items[index];
    *job = (struct weight_job){
        .weight = w, .index = index, .unit_rows = weight_rows_at_once(w), .min = INFINITY, .max = -INFINITY};
    if (w->reason != WEIGHT_TAKEN)
        return;
    int64_t shape[2];
    job->plan = &run->plans[w->group];
    const struct quant_args *a = &run->config.groups[w->group].weights;
    const int ndim = scale_shape(a, w->shape, shape);
    job->unit_rows = ndim == 1 ? w->shape[0] : a->strategy == QUANT_BLOCK ? a->block_structure[0] : 1;
    job->unit_qparams = ndim == 1 ? 1 : shape[1];
}

/* Gives every weight its statistics. */
static int make_statistics(struct quantize_run *run, struct fail *f)
{
    run->statistics = calloc(run->job_count + 1, sizeof *run->statistics);
    if (!run->statistics)
        return NO_MEMORY(f, "the statistics");
    for (size_t i = 0; i < run->job_count; i++) {
        run->jobs[i].statistics = &run->statistics[i];
        run->statistics[i] = (struct job_statistics){.min_scale = INFINITY, .max_scale = -INFINITY};
    }
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

/* Returns true if this part writes the tensors of a weight. They lie in one shard. */
static bool is_written(const struct quantize_run *run, size_t weight)
{
    for (int part = 0; part < OUTPUT_PARTS && run->part_of_shard; part++) {
        const size_t index = run->layout.parts[weight][part];
        if (index != SIZE_MAX)
            return run->part_of_shard[run->layout.tensors[index].shard] == run->args->part;
    }
    return true;
}

/* Adds a job if this part writes the weight, or a member of the set that needs its range. */
static void add_job(struct quantize_run *run, size_t weight, const bool *written_set)
{
    struct weight_job *job = &run->jobs[run->job_count];
    fill_job(job, run, weight);
    job->range_only = !is_written(run, weight);
    const bool exists = job->plan || run->layout.parts[weight][PART_SAME] != SIZE_MAX;
    const bool shares = job->plan && shares_scale(&job->plan->group->weights, run->args->compat);
    run->job_count += exists && (!job->range_only || (shares && written_set[run->layout.set[weight]]));
}

static int make_jobs(struct quantize_run *run, struct fail *f)
{
    const struct weights *all = &run->weights;
    OWNED struct place *places = malloc((all->count + 1) * sizeof *places);
    OWNED bool *written_set = calloc(all->count + 1, sizeof *written_set);
    run->jobs = calloc(all->count + 1, sizeof *run->jobs);
    if (!places || !run->jobs || !written_set)
        return NO_MEMORY(f, "the list of tensors");
    for (size_t i = 0; i < all->count; i++) {
        const struct weight *w = &all->items[i], *leader = &all->items[run->layout.set[i]];
        places[i] = (struct place){.set_shard = leader->source->shard,
                                   .set_data = leader->data,
                                   .set = run->layout.set[i],
                                   .shard = w->source->shard,
                                   .data = w->data,
                                   .index = i};
    }
    qsort(places, all->count, sizeof *places, compare_places);
    for (size_t i = 0; i < all->count; i++)
        written_set[run->layout.set[i]] |= is_written(run, i);
    for (size_t i = 0; i < all->count; i++)
        add_job(run, places[i].index, written_set);
    return QOBS_OK;
}

uint64_t job_bytes(const struct weight_job *job)
{
    const uint64_t source = job->weight->source->stored->end - job->weight->source->stored->begin;
    return job->range_only ? 0 : job->weight->bytes < source ? job->weight->bytes : source;
}

int run_prepare(struct quantize_run *run, struct fail *f)
{
    run->plans = calloc(run->config.group_count + 1, sizeof *run->plans);
    run->files = calloc(run->layout.shard_count + 1, sizeof *run->files);
    if (!run->plans || !run->files)
        return NO_MEMORY(f, "the plans");
    for (size_t i = 0; i < run->config.group_count; i++)
        RETURN_IF_NOT_OK(make_plan(&run->plans[i], &run->config.groups[i], run->config.compat, run->contents, f));
    for (size_t i = 0; i < run->layout.shard_count; i++) {
        run->files[i].fd = -1;
        run->files[i].left = run->layout.shards[i].bytes;
    }
    RETURN_IF_NOT_OK(make_jobs(run, f));
    if (run->contents == CONTENTS_SCALES)
        RETURN_IF_NOT_OK(make_statistics(run, f));
    if (run->planning && !(run->costs = calloc(run->weights.count + 1, sizeof *run->costs)))
        return NO_MEMORY(f, "the costs");
    RETURN_IF_NOT_OK(run_find_importance(run, f));
    run_count_work(run);
    return QOBS_OK;
}
