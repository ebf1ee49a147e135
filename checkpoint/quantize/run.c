/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Orders the work, cuts it into slices and runs the passes of each batch. */
#include "quantize/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "model/stored_qparams.h"
#include "qobs/stateless.h"

/* Bytes of a slice, which with its codes fits L2, and of a batch, which the page cache holds between its passes. */
enum { SLICE_BYTES = 1 << 18, COPY_BYTES = 1 << 22 };

/* Output files that are open at a time, if sets do not need more. */
enum { MAX_FILES = 4 };

#define BATCH_BYTES (UINT64_C(1) << 28)

/* ---- Plans and jobs ---------------------------------------------------------------------------------------------- */

/* Returns the preset of an observer: NULL and the variants for activations are min/max of the weight. */
static void preset_name(const char *observer, char *name, size_t size)
{
    if (observer && strncmp(observer, "qobs.", 5) == 0) {
        snprintf(name, size, "%s", observer);
        return;
    }
    const bool minmax = !observer || strcmp(observer, "static_minmax") == 0;
    const char *bare = minmax                                 ? "memoryless_minmax"
                       : strcmp(observer, "fouroversix") == 0 ? "nvfp4_expanded_mse"
                                                              : observer;
    snprintf(name, size, "llmc.%s", bare);
}

static int make_plan(struct group_plan *plan, const struct quant_group *group, enum layout_contents contents,
                     struct fail *f)
{
    char text[1024], settings[900], preset[100];
    qobs_error error = {0};
    plan->group = group;
    plan->storage = group_storage(group, contents);
    const char *observer = group->weights.observer;
    if (contents == CONTENTS_SCALES && observer && strcmp(observer, "static_mse") == 0)
        observer = "mse"; /* config.json has the other name, under which no observer is registered */
    preset_name(observer, preset, sizeof preset);
    if (quant_args_settings(&group->weights, settings, sizeof settings, f) != 0)
        return failure_status(f);
    snprintf(text, sizeof text, "%s base_name=weight %s", preset, settings);
    if (qobs_config_parse(&plan->config, text, NULL, &error) != QOBS_OK)
        return report_failure(f, error.status, "%s: weights: %s", group->name, error.message);
    if (qobs_config_check(plan->config, &error) != QOBS_OK)
        return report_failure(f, error.status, "%s: weights: %s", group->name, error.message);
    qobs_setting_info info = {.struct_size = sizeof info};
    plan->searches = qobs_config_key_info(plan->config, "patience", &info, NULL) == QOBS_OK;
    char strict[16] = "";
    plan->weighs = qobs_config_get(plan->config, "strict", strict, sizeof strict, NULL) == QOBS_OK;
    plan->strict = strcmp(strict, "true") == 0;
    plan->optimal = qobs_config_key_info(plan->config, "signed_scale", &info, NULL) == QOBS_OK;
    return QOBS_OK;
}

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

/* Gives every weight that is quantized its statistics. */
static int make_statistics(struct quantize_run *run, struct fail *f)
{
    for (size_t i = 0; run->contents == CONTENTS_SCALES && i < run->job_count; i++) {
        struct job_statistics *s = run->jobs[i].plan ? calloc(1, sizeof *s) : NULL;
        if (run->jobs[i].plan && !s)
            return NO_MEMORY(f, "the statistics");
        run->jobs[i].statistics = s;
        if (s)
            *s = (struct job_statistics){.min_scale = INFINITY, .max_scale = -INFINITY};
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
    if (s->set_shard != t->set_shard)
        return s->set_shard < t->set_shard ? -1 : 1;
    if (s->set_data != t->set_data)
        return s->set_data < t->set_data ? -1 : 1;
    if (s->set != t->set)
        return s->set < t->set ? -1 : 1;
    if (s->shard != t->shard)
        return s->shard < t->shard ? -1 : 1;
    return s->data != t->data ? (s->data < t->data ? -1 : 1) : (s->index > t->index) - (s->index < t->index);
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
    struct place *places = malloc((all->count + 1) * sizeof *places);
    bool *written_set = calloc(all->count + 1, sizeof *written_set);
    run->jobs = calloc(all->count + 1, sizeof *run->jobs);
    if (!places || !run->jobs || !written_set) {
        free(places);
        free(written_set);
        return NO_MEMORY(f, "the list of tensors");
    }
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
    free(places);
    free(written_set);
    return QOBS_OK;
}

/* Returns the bytes of the input that a job reads and writes. */
static uint64_t job_bytes(const struct weight_job *job)
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
        RETURN_IF_NOT_OK(make_plan(&run->plans[i], &run->config.groups[i], run->contents, f));
    for (size_t i = 0; i < run->layout.shard_count; i++) {
        run->files[i].fd = -1;
        run->files[i].left = run->layout.shards[i].bytes;
    }
    RETURN_IF_NOT_OK(make_jobs(run, f));
    RETURN_IF_NOT_OK(make_statistics(run, f));
    RETURN_IF_NOT_OK(run_find_importance(run, f));
    run->total = run->activations.bytes;
    for (size_t i = 0; i < run->job_count; i++)
        run->total += job_bytes(&run->jobs[i]);
    return QOBS_OK;
}

void run_free(struct quantize_run *run)
{
    if (!run)
        return;
    json_object_put(run->earlier);
    for (size_t i = 0; run->plans && i < run->config.group_count; i++)
        qobs_config_destroy(run->plans[i].config);
    for (size_t i = 0; i < run->job_count; i++) {
        free(run->jobs[i].search_min);
        free(run->jobs[i].search_max);
        free(run->jobs[i].optimal_scale);
        free(run->jobs[i].optimal_zero_point);
        if (run->jobs[i].statistics)
            free(run->jobs[i].statistics->candidates);
        free(run->jobs[i].statistics);
    }
    for (struct workspace *w = run->free_workspaces, *next; w; w = next) {
        next = w->next;
        for (int k = 0; k < WORK_PARTS; k++)
            free(w->data[k]);
        free(w);
    }
    struct fail ignored;
    for (size_t i = 0; run->files && i < run->layout.shard_count; i++)
        if (run->files[i].fd >= 0)
            output_directory_close(&run->out, run->files[i].fd, &ignored);
    output_directory_abort(&run->out);
    free(run->plans);
    free(run->jobs);
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
    pthread_mutex_destroy(&run->lock);
    free(run);
}

/* ---- Slices ------------------------------------------------------------------------------------------------------ */

static int add_slice(struct quantize_run *run, struct weight_job *job, int64_t first, int64_t count, struct fail *f)
{
    struct row_slice *grown = list_grow(run->slices, run->slice_count, sizeof *grown);
    if (!grown)
        return NO_MEMORY(f, "the slices");
    run->slices = grown;
    run->slices[run->slice_count++] =
        (struct row_slice){.job = job, .first = first, .count = count, .min = INFINITY, .max = -INFINITY};
    return QOBS_OK;
}

/* Cuts a matrix into slices of whole units, and of 32 rows because packed zero points of 32 rows fill words. */
static int cut_rows(struct quantize_run *run, struct weight_job *job, struct fail *f)
{
    const int64_t rows = weight_rows(job->weight);
    const bool global = job->unit_rows == rows && job->unit_qparams == 1;
    const int64_t row_bytes = weight_columns(job->weight) * (int64_t)dtype_size(job->weight->dtype);
    const int64_t unit = global ? 1 : job->plan && job->plan->storage.packed_zero_points ? 32 : job->unit_rows;
    int64_t count = SLICE_BYTES / (row_bytes > 0 ? row_bytes : 1) / unit * unit;
    count = count > 0 ? count : unit;
    for (int64_t first = 0; first < rows; first += count)
        RETURN_IF_NOT_OK(add_slice(run, job, first, rows - first < count ? rows - first : count, f));
    return QOBS_OK;
}

static int cut_bytes(struct quantize_run *run, struct weight_job *job, struct fail *f)
{
    const struct weight *w = job->weight;
    if (!weight_is_contiguous(w))
        return cut_rows(run, job, f);
    for (uint64_t first = 0; first < w->bytes; first += COPY_BYTES) {
        const uint64_t left = w->bytes - first;
        RETURN_IF_NOT_OK(add_slice(run, job, (int64_t)first, (int64_t)(left < COPY_BYTES ? left : COPY_BYTES), f));
    }
    return QOBS_OK;
}

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

static void record_failure(struct quantize_run *run, size_t slice, int status, const struct fail *f)
{
    if (slice < run->failed) {
        run->failed = slice;
        run->status = status;
        run->failure = *f;
    }
}

/* Reports progress; the lock is held. */
static void report_progress(struct quantize_run *run, uint64_t bytes)
{
    const qobs_progress progress = {.struct_size = sizeof progress,
                                    .stage = "quantize",
                                    .bytes_done = run->done += bytes,
                                    .bytes_total = run->total};
    if (run->args->progress && !run->stopped && run->args->progress(run->args->context, &progress) != 0)
        run->stopped = true;
}

bool run_progress(struct quantize_run *run, uint64_t bytes)
{
    pthread_mutex_lock(&run->lock);
    run->total = run->model.bytes + run->activations.bytes;
    report_progress(run, bytes);
    const bool stopped = run->stopped;
    pthread_mutex_unlock(&run->lock);
    return stopped;
}

static uint64_t input_bytes(const struct row_slice *s)
{
    const struct weight *w = s->job->weight;
    const bool bytes = !s->job->plan && weight_is_contiguous(w);
    const uint64_t whole = bytes ? w->bytes : (uint64_t)weight_rows(w);
    return whole ? (uint64_t)((double)job_bytes(s->job) * (double)s->count / (double)whole) : 0;
}

static void run_slice(void *argument, size_t index)
{
    struct quantize_run *run = argument;
    struct fail f = {.message = ""};
    pthread_mutex_lock(&run->lock);
    const bool skipped = run->stopped || run->failed < index;
    struct workspace *work = run->free_workspaces;
    if (work)
        run->free_workspaces = work->next;
    pthread_mutex_unlock(&run->lock);
    if (!work)
        work = calloc(1, sizeof *work);
    const int status = skipped ? QOBS_OK
                       : work  ? run->pass(run, &run->slices[index], work, &f)
                               : NO_MEMORY(&f, "a slice");
    pthread_mutex_lock(&run->lock);
    if (status != QOBS_OK)
        record_failure(run, index, status, &f);
    else if (run->pass != slice_range)
        report_progress(run, input_bytes(&run->slices[index]));
    if (work) {
        work->next = run->free_workspaces;
        run->free_workspaces = work;
    }
    pthread_mutex_unlock(&run->lock);
}

/* Runs the pass over all slices on the caller's threads. */
static int run_pass(struct quantize_run *run,
                    int (*pass)(struct quantize_run *run, struct row_slice *slice, struct workspace *workspace,
                                struct fail *f),
                    struct fail *f)
{
    run->pass = pass;
    run->failed = SIZE_MAX;
    run_tasks(run->args->runtime, run_slice, run, run->slice_count);
    if (run->failed != SIZE_MAX) {
        *f = run->failure;
        return run->status;
    }
    return run->stopped ? report_failure(f, QOBS_ERROR_CANCELLED, "stopped by the caller") : QOBS_OK;
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

static int put(struct quantize_run *run, const struct output_tensor *t, uint64_t offset, const void *data, size_t bytes,
               struct fail *f)
{
    if (run->scales)
        return st_writer_put(run->scales, (size_t)(t - run->layout.tensors), offset, data, bytes, f) == 0
                   ? QOBS_OK
                   : QOBS_ERROR_SYSTEM;
    struct output_file *file = &run->files[t->shard];
    if (output_directory_put(&run->out, file->fd, data, bytes, t->offset + offset, f) != 0)
        return QOBS_ERROR_SYSTEM;
    atomic_fetch_sub(&file->left, bytes);
    return QOBS_OK;
}

int run_put(struct quantize_run *run, const struct weight_job *job, enum output_part part, uint64_t offset,
            const void *data, size_t bytes, struct fail *f)
{
    return put(run, &run->layout.tensors[run->layout.parts[job->index][part]], offset, data, bytes, f);
}

/* Opens the files of a job's tensors and writes their headers. */
static int open_files(struct quantize_run *run, const struct weight_job *job, struct fail *f)
{
    for (int part = 0; part < OUTPUT_PARTS && !run->scales; part++) {
        const size_t index = run->layout.parts[job->index][part];
        if (index == SIZE_MAX)
            continue;
        const size_t shard = run->layout.tensors[index].shard;
        struct output_file *file = &run->files[shard];
        const struct output_shard *s = &run->layout.shards[shard];
        if (file->fd >= 0 || file->done || job->range_only)
            continue;
        if (output_directory_create(&run->out, s->path, s->bytes, &file->fd, f) != 0 ||
            output_directory_put(&run->out, file->fd, s->header, s->header_bytes, 0, f) != 0)
            return QOBS_ERROR_SYSTEM;
        atomic_fetch_sub(&file->left, s->header_bytes);
    }
    return QOBS_OK;
}

static int close_files(struct quantize_run *run, struct fail *f)
{
    for (size_t i = 0; i < run->layout.shard_count; i++) {
        struct output_file *file = &run->files[i];
        if (file->fd < 0 || atomic_load(&file->left) > 0)
            continue;
        const int fd = file->fd;
        file->fd = -1;
        file->done = true;
        if (output_directory_close(&run->out, fd, f) != 0)
            return QOBS_ERROR_SYSTEM;
    }
    return QOBS_OK;
}

/* Writes the scales of activations that lie in the shard of the weight. */
static int write_activations(struct quantize_run *run, const struct weight_job *job, struct fail *f)
{
    const struct activation_scales *all = &run->activations;
    size_t low = 0, high = all->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (all->items[middle].weight < job->index)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < all->count && all->items[low].weight == job->index; low++) {
        const struct output_tensor *t = &run->layout.tensors[run->layout.activations[low]];
        RETURN_IF_NOT_OK(put(run, t, 0, all->items[low].data, all->items[low].bytes, f));
    }
    return QOBS_OK;
}

/* Writes the tensors that are one number or two. */
static int write_small(struct quantize_run *run, const struct weight_job *job, struct fail *f)
{
    const int64_t *shape = job->weight->shape;
    unsigned char numbers[16], global[4];
    for (int i = 0; i < 16; i++)
        numbers[i] = (unsigned char)((uint64_t)shape[i / 8] >> 8 * (i % 8));
    memcpy(global, &job->global_scale, sizeof global);
    if (run->layout.parts[job->index][PART_SHAPE] != SIZE_MAX)
        RETURN_IF_NOT_OK(run_put(run, job, PART_SHAPE, 0, numbers, sizeof numbers, f));
    if (run->layout.parts[job->index][PART_GLOBAL_SCALE] != SIZE_MAX)
        RETURN_IF_NOT_OK(run_put(run, job, PART_GLOBAL_SCALE, 0, global, sizeof global, f));
    return QOBS_OK;
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
        if (jobs[i].plan && jobs[i].plan->searches)
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
static int set_global_scale(struct quantize_run *run, struct weight_job *jobs, size_t count, struct fail *f)
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
    (void)run;
    if (!first)
        return QOBS_OK;
    /* Optimal scales are found in F32. */
    const qobs_dtype dtype = first->plan->optimal ? QOBS_F32 : dtype_in_library(first->weight->dtype);
    if (qobs_global_scale(first->plan->config, dtype, min, max, &scale, &error) != QOBS_OK)
        return weight_failure(first, &error, f);
    for (size_t i = 0; i < count; i++) {
        jobs[i].global_scale = scale;
        jobs[i].set_amax = fmax(-min, max);
    }
    return QOBS_OK;
}

static int run_batch(struct quantize_run *run, struct weight_job *jobs, size_t count, struct fail *f)
{
    RETURN_IF_NOT_OK(find_job_ranges(run, jobs, count, f));
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && run->layout.set[jobs[end].index] == run->layout.set[jobs[first].index];)
            end++;
        share_range(run, jobs + first, end - first);
        RETURN_IF_NOT_OK(set_global_scale(run, jobs + first, end - first, f));
    }
    for (size_t i = 0; i < count; i++)
        if (jobs[i].plan && jobs[i].plan->optimal && !jobs[i].range_only)
            RETURN_IF_NOT_OK(job_optimal(run, &jobs[i], f));
    for (size_t i = 0; i < count; i++)
        RETURN_IF_NOT_OK(open_files(run, &jobs[i], f));
    for (int quantized = 1; quantized >= 0; quantized--) {
        run->slice_count = 0;
        for (size_t i = 0; i < count; i++)
            if ((jobs[i].plan != NULL) == (quantized == 1) && !jobs[i].range_only)
                RETURN_IF_NOT_OK(quantized ? cut_rows(run, &jobs[i], f) : cut_bytes(run, &jobs[i], f));
        RETURN_IF_NOT_OK(run_pass(run, quantized ? slice_quantize : slice_copy, f));
        for (size_t i = 0; quantized && i < run->slice_count; i++) {
            run->slices[i].job->error += run->slices[i].error;
            run->slices[i].job->energy += run->slices[i].energy;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (!jobs[i].range_only) {
            RETURN_IF_NOT_OK(write_small(run, &jobs[i], f));
            RETURN_IF_NOT_OK(write_activations(run, &jobs[i], f));
        }
        free(jobs[i].search_min);
        free(jobs[i].search_max);
        free(jobs[i].optimal_scale);
        free(jobs[i].optimal_zero_point);
        jobs[i].search_min = jobs[i].search_max = jobs[i].optimal_scale = jobs[i].optimal_zero_point = NULL;
    }
    return close_files(run, f);
}

/* Counts the files that a job writes and the batch does not have open yet. With `mark` they belong to the batch. */
static size_t new_files(struct quantize_run *run, const struct weight_job *job, size_t batch, bool mark)
{
    size_t count = 0;
    for (int part = 0; part < OUTPUT_PARTS; part++) {
        const size_t index = run->layout.parts[job->index][part];
        struct output_file *file = index == SIZE_MAX ? NULL : &run->files[run->layout.tensors[index].shard];
        if (!file || job->range_only || file->fd >= 0 || file->batch == batch)
            continue;
        count++;
        file->batch = mark ? batch : file->batch;
    }
    return count;
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
            more += new_files(run, &run->jobs[next], first + 1, false) > 0;
        }
        if (end > first && more > 0 && files + more > MAX_FILES)
            break;
        for (size_t i = end; i < next; i++)
            files += new_files(run, &run->jobs[i], first + 1, true) > 0;
        end = next;
    }
    return end;
}

int run_tensors(struct quantize_run *run, struct fail *f)
{
    for (size_t first = 0, end; first < run->job_count; first = end) {
        end = end_of_batch(run, first);
        RETURN_IF_NOT_OK(run_batch(run, run->jobs + first, end - first, f));
    }
    return QOBS_OK;
}
