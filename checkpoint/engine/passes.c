/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Cuts jobs into slices, runs passes over them on all threads, and makes batches of jobs. */
#include <math.h>
#include <stdlib.h>

#include "engine/engine_steps.h"
#include "files/status.h"
#include "files/text.h"

/* Bytes of a slice, which with its codes fits L2. */
enum { SLICE_BYTES = 1 << 18, MOVED_BYTES = 1 << 21, COPY_BYTES = 1 << 22 };

/* Rows of a slice that are many. */
enum { MANY_ROWS = 256 };

/* Files of the model that a batch reads, and a sink may write beside them, if sets do not need more. */
enum { MAX_SHARDS = 4 };

/* Bytes of a batch, which the page cache holds between its passes, and its jobs, each of which has a quantizer. */
#define BATCH_BYTES (UINT64_C(1) << 28)
enum { BATCH_JOBS = 1024 };

/* ---- Slices ------------------------------------------------------------------------------------------------------ */

static int add_slice(struct engine *e, struct weight_job *job, int64_t first, int64_t count, struct fail *f)
{
    const struct row_slice s = {.job = job, .first = first, .count = count, .min = INFINITY, .max = -INFINITY};
    return list_append(&e->pass.slices, &e->pass.count, sizeof s, &s) ? QOBS_OK : NO_MEMORY(f, "the slices");
}

/* Returns true if words have codes or zero points of several rows. */
static bool packs_rows(const struct weight_job *job)
{
    const struct quant_group *g = job->group ? job->group->quant : NULL;
    return g && (quant_packs_zero_points(g->format, &g->weights) || quant_format_row(g->stored)->words);
}

/* Slices have whole units, and 32 rows because packed zero points of 32 rows fill words. Words of AWQ of 128 rows are a
 * line of a cache. */
static int cut_rows(struct engine *e, struct weight_job *job, struct fail *f)
{
    const int64_t rows = weight_rows(job->weight);
    const bool global = job->unit_rows == rows && job->unit_qparams == 1;
    const int64_t row_bytes = weight_columns(job->weight) * (int64_t)dtype_size(job->weight->dtype);
    const int64_t unit = global ? 1 : job->moved.words ? 128 : packs_rows(job) ? 32 : job->unit_rows;
    const int64_t bytes = job->moved.words ? MOVED_BYTES : SLICE_BYTES;
    int64_t count = bytes / (row_bytes > 0 ? row_bytes : 1) / unit * unit;
    count = count > 0 ? count : unit;
    count = job->wants & WANTS_MANY_ROWS && count < MANY_ROWS ? MANY_ROWS : count;
    for (int64_t first = 0; first < rows; first += count)
        RETURN_IF_NOT_OK(add_slice(e, job, first, rows - first < count ? rows - first : count, f));
    return QOBS_OK;
}

static int cut_bytes(struct engine *e, struct weight_job *job, struct fail *f)
{
    const struct weight *w = job->weight;
    if (job_takes_rows(job))
        return cut_rows(e, job, f);
    for (uint64_t first = 0; first < w->bytes; first += COPY_BYTES) {
        const uint64_t left = w->bytes - first;
        RETURN_IF_NOT_OK(add_slice(e, job, (int64_t)first, (int64_t)(left < COPY_BYTES ? left : COPY_BYTES), f));
    }
    return QOBS_OK;
}

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

static void record_failure(struct engine_pass *p, size_t slice, int status, const struct fail *f)
{
    if (slice < p->failed) {
        p->failed = slice;
        p->status = status;
        p->failure = *f;
    }
}

static void run_slice(void *argument, size_t index)
{
    struct engine *e = argument;
    struct engine_pass *p = &e->pass;
    struct row_slice *slice = &p->slices[index];
    struct fail f = {.message = ""};
    pthread_mutex_lock(&p->lock);
    const bool skipped = e->meter->stopped || p->failed < index;
    struct workspace *work = p->workspaces;
    if (work)
        p->workspaces = work->next;
    pthread_mutex_unlock(&p->lock);
    if (!work)
        work = calloc(1, sizeof *work);
    const int status = skipped ? QOBS_OK : work ? p->function(e, slice, work, &f) : NO_MEMORY(&f, "a slice");
    if (status == QOBS_OK && p->function != slice_range && !slice->job->result.rounded)
        meter_add(e->meter, slice->job->weight, slice_bytes(slice), 0);
    pthread_mutex_lock(&p->lock);
    if (status != QOBS_OK)
        record_failure(p, index, status, &f);
    if (work) {
        work->next = p->workspaces;
        p->workspaces = work;
    }
    pthread_mutex_unlock(&p->lock);
}

static int run_pass(struct engine *e, slice_pass *function, struct fail *f)
{
    struct engine_pass *p = &e->pass;
    p->function = function;
    p->failed = SIZE_MAX;
    if (p->count > 0) /* threads that wake up for nothing cost more than small models */
        run_tasks(e->in.runtime, run_slice, e, p->count);
    if (p->failed != SIZE_MAX) {
        *f = p->failure;
        return p->status;
    }
    return e->meter->stopped ? report_failure(f, QOBS_ERROR_CANCELLED, "stopped by the caller") : QOBS_OK;
}

/* ---- Steps of a batch -------------------------------------------------------------------------------------------- */

static bool needs_range(const struct weight_job *job)
{
    const enum quant_strategy strategy = job->group ? job_args(job)->strategy : QUANT_CHANNEL;
    if (job_keeps_codes(job))
        return job->wants & WANTS_COUNTS;
    return strategy == QUANT_TENSOR || strategy == QUANT_TENSOR_GROUP || job->cast;
}

/* Finds the ranges of complete weights. */
static int find_ranges(struct engine *e, struct weight_job *jobs, size_t count, struct fail *f)
{
    e->pass.count = 0;
    for (size_t i = 0; i < count; i++)
        if (jobs[i].group && jobs[i].group->needs.searches_range)
            RETURN_IF_NOT_OK(job_search_range(e, &jobs[i], f));
        else if (needs_range(&jobs[i]))
            RETURN_IF_NOT_OK(cut_rows(e, &jobs[i], f));
    RETURN_IF_NOT_OK(run_pass(e, slice_range, f));
    for (size_t i = 0; i < e->pass.count; i++) {
        struct job_range *r = &e->pass.slices[i].job->range;
        r->min = fmin(r->min, e->pass.slices[i].min);
        r->max = fmax(r->max, e->pass.slices[i].max);
    }
    return QOBS_OK;
}

/* Returns true if a pass over slices has something to do with a job. */
static bool has_slices(const struct weight_job *job)
{
    return job_left(job) & (WANTS_SCALES | WANTS_CODES | WANTS_NUMBERS | WANTS_COPY | WANTS_ROWS);
}

/* Finds what sets share, then optimal scales, and makes the quantizers. */
static int find_scales(struct engine *e, struct weight_job *jobs, size_t count, struct fail *f)
{
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && e->set[jobs[end].index] == e->set[jobs[first].index];)
            end++;
        RETURN_IF_NOT_OK(set_share(e, jobs + first, end - first, f));
    }
    for (size_t i = 0; i < count; i++) {
        if (!jobs[i].group || !jobs[i].group->needs.searches_scale || !jobs[i].wants)
            continue;
        RETURN_IF_NOT_OK(job_optimal(e, &jobs[i], f));
        if (!jobs[i].result.rounded && !has_slices(&jobs[i])) /* no pass counts its bytes */
            RETURN_IF_NOT_OK(engine_progress(e, &jobs[i], job_bytes(&jobs[i]), 0, f));
    }
    for (size_t i = 0; i < count; i++)
        if (jobs[i].group && has_slices(&jobs[i]))
            RETURN_IF_NOT_OK(job_prepare(&jobs[i], f));
    return QOBS_OK;
}

void slice_sum(const struct row_slice *s)
{
    struct job_result *r = &s->job->result;
    r->error += s->error;
    r->energy += s->energy;
    r->blocks += s->blocks;
    r->lossless += s->lossless;
    for (int i = 0; i < SINK_SUMS; i++)
        r->sums[i] += s->sums[i];
}

static int run_slices(struct engine *e, struct weight_job *jobs, size_t count, bool quantized, struct fail *f)
{
    e->pass.count = 0;
    for (size_t i = 0; i < count; i++)
        if (has_slices(&jobs[i]) && (jobs[i].group != NULL) == quantized)
            RETURN_IF_NOT_OK(quantized ? cut_rows(e, &jobs[i], f) : cut_bytes(e, &jobs[i], f));
    RETURN_IF_NOT_OK(run_pass(e, quantized ? slice_quantize : slice_copy, f));
    for (size_t i = 0; i < e->pass.count; i++)
        slice_sum(&e->pass.slices[i]);
    return QOBS_OK;
}

/* Frees what a job has found. */
static void job_release(struct weight_job *job)
{
    if (job->borrowed)
        weight_release(job->weight);
    job->borrowed = false;
    free(job->range.lows);
    free(job->range.highs);
    free(job->qparams.scale);
    free(job->qparams.zero_point);
    free(job->hessian.sum);
    qobs_quantizer_destroy(job->quantizer);
    job->quantizer = NULL;
    job->hessian.sum = NULL;
    job->range.lows = job->range.highs = job->qparams.scale = job->qparams.zero_point = NULL;
}

static int run_jobs(struct engine *e, struct weight_job *jobs, size_t count, struct fail *f)
{
    const struct sink_functions *sink = e->sink->functions;
    for (size_t i = 0; i < count; i++) {
        RETURN_IF_NOT_OK(weight_borrow(jobs[i].weight, f));
        jobs[i].borrowed = true;
        if (sink->begin && jobs[i].wants)
            RETURN_IF_NOT_OK(sink->begin(e->sink, &jobs[i], f));
    }
    RETURN_IF_NOT_OK(find_ranges(e, jobs, count, f));
    RETURN_IF_NOT_OK(find_scales(e, jobs, count, f));
    RETURN_IF_NOT_OK(run_slices(e, jobs, count, true, f));
    RETURN_IF_NOT_OK(run_slices(e, jobs, count, false, f));
    for (size_t i = 0; i < count; i++) {
        if (sink->done && jobs[i].wants)
            RETURN_IF_NOT_OK(sink->done(e->sink, &jobs[i], f));
        job_release(&jobs[i]);
    }
    return QOBS_OK;
}

/* ---- Batches ----------------------------------------------------------------------------------------------------- */

/* Adds a shard to those of a batch, as far as they are counted. */
static size_t add_shard(size_t *shards, size_t count, size_t shard)
{
    for (size_t i = 0; i < count; i++)
        if (shards[i] == shard)
            return count;
    if (count <= MAX_SHARDS)
        shards[count++] = shard;
    return count;
}

/* Returns the end of the batch that begins with job `first`: whole sets, limited in bytes, jobs and shards. */
static size_t end_of_batch(const struct engine *e, size_t first)
{
    uint64_t bytes = 0;
    size_t end = first, next, shards[MAX_SHARDS + 1], count = 0;
    while (end < e->job_count && bytes < BATCH_BYTES && end - first < BATCH_JOBS) {
        const size_t set = e->set[e->jobs[end].index];
        for (next = end; next < e->job_count && e->set[e->jobs[next].index] == set; next++) {
            bytes += e->jobs[next].weight->bytes;
            count = add_shard(shards, count, e->jobs[next].weight->source->shard);
        }
        if (end > first && count > MAX_SHARDS)
            break;
        end = next;
    }
    return end;
}

int engine_run_batch(struct engine *e, struct fail *f)
{
    const size_t begin = e->next;
    e->next = end_of_batch(e, begin);
    return run_jobs(e, e->jobs + begin, e->next - begin, f);
}

int engine_run(struct engine *e, struct fail *f)
{
    while (e->next < e->job_count)
        RETURN_IF_NOT_OK(engine_run_batch(e, f));
    return QOBS_OK;
}

void engine_close(struct engine *e)
{
    if (!e->sink)
        return;
    for (size_t i = 0; e->groups && i < e->in.config->group_count; i++)
        qobs_config_destroy(e->groups[i].config);
    for (size_t i = 0; i < e->job_count; i++)
        job_release(&e->jobs[i]);
    for (struct workspace *w = e->pass.workspaces, *next; w; w = next) {
        next = w->next;
        workspace_clear(w);
        free(w);
    }
    free(e->groups);
    free(e->set);
    free(e->cast);
    free(e->jobs);
    free(e->pass.slices);
    pthread_mutex_destroy(&e->pass.lock);
}
