/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Runs the batches: ranges of complete weights and sets, codes, what is copied. */
#include "quantize/run.h"

#include <math.h>
#include <stdlib.h>

#include "model/stored_qparams.h"
#include "qobs/stateless.h"

/* Output files that are open at a time, if sets do not need more. */
enum { MAX_FILES = 4 };

/* Bytes of a batch, which the page cache holds between its passes. */
#define BATCH_BYTES (UINT64_C(1) << 28)

void job_release(struct weight_job *job)
{
    free(job->search_min);
    free(job->search_max);
    free(job->scale);
    free(job->zero_point);
    free(job->hessian);
    qobs_quantizer_destroy(job->quantizer);
    job->quantizer = NULL;
    job->hessian = NULL;
    job->search_min = job->search_max = job->scale = job->zero_point = NULL;
}

void run_free(struct quantize_run *run)
{
    if (!run)
        return;
    json_object_put(run->existing_config);
    for (size_t i = 0; run->plans && i < run->config.group_count; i++)
        qobs_config_destroy(run->plans[i].config);
    for (size_t i = 0; i < run->job_count; i++) {
        job_release(&run->jobs[i]);
        if (run->statistics)
            free(run->statistics[i].candidates);
    }
    for (struct workspace *w = run->free_workspaces, *next; w; w = next) {
        next = w->next;
        workspace_clear(w);
        free(w);
    }
    for (size_t i = 0; run->files && i < run->layout.shard_count; i++)
        if (run->files[i].fd >= 0)
            output_directory_close(&run->out, run->files[i].fd, NULL);
    output_directory_abort(&run->out);
    free(run->plans);
    free(run->jobs);
    free(run->statistics);
    for (size_t i = 0; run->costs && i < run->weights.count; i++) {
        free(run->costs[i].importance);
        for (int half = 0; half < HALVES; half++)
            free(run->costs[i].row[half]);
    }
    free(run->costs);
    free(run->files);
    free(run->part_of_shard);
    free(run->slices);
    layout_free(&run->layout);
    activation_scales_free(&run->activations);
    importance_free(&run->importance);
    weights_free(&run->weights);
    quant_config_free(&run->config);
    findings_free(&run->findings);
    model_close(&run->model);
    architecture_file_free(&run->given);
    pthread_mutex_destroy(&run->lock);
    free(run);
}

/* ---- Batches ----------------------------------------------------------------------------------------------------- */

static bool needs_range(const struct weight_job *job)
{
    const enum quant_strategy strategy = job->plan ? job->plan->group->weights.strategy : QUANT_CHANNEL;
    return strategy == QUANT_TENSOR || strategy == QUANT_TENSOR_GROUP;
}

/* Finds the ranges of complete weights. */
static int find_job_ranges(struct quantize_run *run, struct weight_job *jobs, size_t count, struct fail *f)
{
    run->slice_count = 0;
    for (size_t i = 0; i < count; i++)
        if (jobs[i].plan && jobs[i].plan->needs.searches_range)
            RETURN_IF_NOT_OK(job_search(run, &jobs[i], f));
        else if (needs_range(&jobs[i]))
            RETURN_IF_NOT_OK(cut_rows(run, &jobs[i], f));
    RETURN_IF_NOT_OK(run_pass(run, slice_range, f));
    for (size_t i = 0; i < run->slice_count; i++) {
        struct weight_job *job = run->slices[i].job;
        job->min = fmin(job->min, run->slices[i].min);
        job->max = fmax(job->max, run->slices[i].max);
    }
    return QOBS_OK;
}

/* Gives the members of a set with one scale for each tensor the range of all of them. Optimal scales stay their own. */
static void share_range(const struct quantize_run *run, struct weight_job *jobs, size_t count)
{
    double min = INFINITY, max = -INFINITY;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count; i++) {
            struct weight_job *job = &jobs[i];
            const struct quant_args *a = job->plan ? &job->plan->group->weights : NULL;
            if (!a || a->strategy != QUANT_TENSOR || !shares_scale(a, run->args->compat))
                continue;
            if (pass == 0) {
                min = fmin(min, job->min);
                max = fmax(max, job->max);
                continue;
            }
            job->min = min;
            job->max = max;
            if (job->search_min) {
                stored_put_number(job->search_min, dtype_in_library(job->weight->dtype), min);
                stored_put_number(job->search_max, dtype_in_library(job->weight->dtype), max);
            }
        }
}

/* Gives the members of a set one global scale. The jobs of a set lie side by side. */
static int set_global_scale(struct weight_job *jobs, size_t count, struct fail *f)
{
    double min = INFINITY, max = -INFINITY;
    const struct weight_job *first = NULL;
    qobs_error error = {0};
    float scale;
    for (size_t i = 0; i < count; i++)
        if (jobs[i].plan && jobs[i].plan->group->weights.strategy == QUANT_TENSOR_GROUP) {
            first = first ? first : &jobs[i];
            min = fmin(min, jobs[i].min);
            max = fmax(max, jobs[i].max);
        }
    if (!first)
        return QOBS_OK;
    /* Optimal scales are found in F32. */
    const qobs_dtype dtype = first->plan->needs.searches_scale ? QOBS_F32 : dtype_in_library(first->weight->dtype);
    if (qobs_global_scale(first->plan->config, dtype, min, max, &scale, &error) != QOBS_OK)
        return weight_failure(first, &error, f);
    for (size_t i = 0; i < count; i++) {
        jobs[i].global_scale = scale;
        jobs[i].set_amax = fmax(-min, max);
    }
    return QOBS_OK;
}

/* Returns true if a pass over slices has something to do with a job. */
static bool has_slices(const struct quantize_run *run, const struct weight_job *job, bool quantized)
{
    if (job->range_only || (job->plan != NULL) != quantized)
        return false;
    return !run->costs || (quantized && !is_cost_of_search(run, job) && !job->descended);
}

static int run_optimal(struct quantize_run *run, struct weight_job *job, struct fail *f)
{
    RETURN_IF_NOT_OK(job_optimal(run, job, f));
    const bool done = job->descended || has_slices(run, job, true); /* else no pass counts its bytes */
    return done ? QOBS_OK : run_search_progress(run, job, job_bytes(job), 0, f);
}

static int run_batch(struct quantize_run *run, struct weight_job *jobs, size_t count, struct fail *f)
{
    for (size_t i = 0; run->costs && i < count; i++)
        RETURN_IF_NOT_OK(costs_open(run, &jobs[i], f));
    RETURN_IF_NOT_OK(find_job_ranges(run, jobs, count, f));
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && run->layout.set[jobs[end].index] == run->layout.set[jobs[first].index];)
            end++;
        share_range(run, jobs + first, end - first);
        RETURN_IF_NOT_OK(set_global_scale(jobs + first, end - first, f));
    }
    for (size_t i = 0; i < count; i++)
        RETURN_IF_NOT_OK(open_files(run, &jobs[i], f));
    for (size_t i = 0; i < count; i++)
        if (jobs[i].plan && jobs[i].plan->needs.searches_scale && !jobs[i].range_only)
            RETURN_IF_NOT_OK(run_optimal(run, &jobs[i], f));
    for (size_t i = 0; i < count; i++)
        if (jobs[i].plan && !jobs[i].range_only)
            RETURN_IF_NOT_OK(job_prepare(run, &jobs[i], f));
    for (int quantized = 1; quantized >= 0; quantized--) {
        run->slice_count = 0;
        for (size_t i = 0; i < count; i++)
            if (has_slices(run, &jobs[i], quantized == 1))
                RETURN_IF_NOT_OK(quantized ? cut_rows(run, &jobs[i], f) : cut_bytes(run, &jobs[i], f));
        RETURN_IF_NOT_OK(run_pass(run, quantized ? slice_quantize : slice_copy, f));
        for (size_t i = 0; quantized && i < run->slice_count; i++) {
            run->slices[i].job->error += run->slices[i].error;
            run->slices[i].job->energy += run->slices[i].energy;
            for (int half = 0; half < HALVES && run->costs; half++)
                run->costs[run->slices[i].job->index].loss[half] += run->slices[i].loss[half];
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (!jobs[i].range_only)
            RETURN_IF_NOT_OK(write_small(run, &jobs[i], f));
        if (run->costs)
            costs_close(run, &jobs[i]);
        job_release(&jobs[i]);
    }
    return close_files(run, f);
}

/* Returns the end of the batch that begins with job `first`: whole sets, limited in bytes and in open files. */
static size_t end_of_batch(struct quantize_run *run, size_t first)
{
    uint64_t bytes = 0;
    size_t end = first, next, files = 0;
    for (size_t i = 0; i < run->layout.shard_count; i++)
        files += run->files[i].fd >= 0;
    while (end < run->job_count && bytes < BATCH_BYTES) {
        const size_t set = run->layout.set[run->jobs[end].index];
        size_t more = 0;
        for (next = end; next < run->job_count && run->layout.set[run->jobs[next].index] == set; next++) {
            bytes += run->jobs[next].weight->bytes;
            more += count_new_files(run, &run->jobs[next], first + 1, false) > 0;
        }
        if (end > first && more > 0 && files + more > MAX_FILES)
            break;
        for (size_t i = end; i < next; i++)
            files += count_new_files(run, &run->jobs[i], first + 1, true) > 0;
        end = next;
    }
    return end;
}

int run_next_batch(struct quantize_run *run, size_t *first, struct fail *f)
{
    const size_t begin = *first;
    *first = end_of_batch(run, begin);
    return run_batch(run, run->jobs + begin, *first - begin, f);
}

int run_tensors(struct quantize_run *run, struct fail *f)
{
    for (size_t first = 0; first < run->job_count;)
        RETURN_IF_NOT_OK(run_next_batch(run, &first, f));
    return QOBS_OK;
}
