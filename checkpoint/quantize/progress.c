/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Progress: bytes of the input, and the share of the work, in which layers whose scales or codes are searched count for
 * more than their bytes. Work is in bytes of the input that cost about the same time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "files/text.h"
#include "quantize/run.h"

/* ---- Work -------------------------------------------------------------------------------------------------------- */

/* Figures of one thread of a server CPU with AVX-512 or AVX2, which takes about a nanosecond to quantize a byte; see
 * "Data and cost" and "Rounding" in docs/choosing.md. */
#define BYTES_OF_SEARCH 15.0  /* an element whose scale is searched */
#define BYTES_OF_PRODUCT 0.6  /* an element and a column of its block of the Hessian, in that search */
#define BYTES_OF_DESCENT 0.02 /* the same, in a pass over codes */
#define BYTES_OF_GRAM 0.03    /* a product of two columns of a token */

/* Returns a setting that is a number; `fallback` if the preset has none of that name. */
static double setting_of(const qobs_config *config, const char *key, double fallback)
{
    char text[64];
    return qobs_config_get(config, key, text, sizeof text, NULL) == QOBS_OK ? strtod(text, NULL) : fallback;
}

/* Returns the columns of a block of the Hessian that a search weighs products with; 0: none. */
static double block_of(const struct weight_job *job)
{
    const struct quant_args *a = &job->plan->group->weights;
    const double columns = (double)job->weight->shape[1],
                 given = setting_of(job->plan->config, "hessian_block_size", 0);
    if (!job->plan->needs.hessian || !job->weighted)
        return 0;
    return fmin(columns, given > 0 ? given : a->group_size > 0 ? (double)a->group_size : columns);
}

static double tokens_of(const struct quantize_run *run, const struct weight_job *job)
{
    const struct tensor_ref *recorded = job->importance.recorded;
    const double row = recorded ? (double)job->weight->shape[1] * (double)dtype_size(recorded->dtype) : 0;
    return row > 0 ? (double)recorded->bytes / row * (double)run->importance.recordings.count : 0;
}

struct search_work job_search_work(const struct quantize_run *run, const struct weight_job *job)
{
    if (!job->plan || !job->plan->needs.searches_scale || job->range_only)
        return (struct search_work){0};
    const double columns = (double)job->weight->shape[1], elements = (double)job->weight->shape[0] * columns;
    const double block = block_of(job);
    const double passes = job->plan->descends ? setting_of(job->plan->config, "rounding_passes", 1) : 0;
    return (struct search_work){.scales = elements * (BYTES_OF_SEARCH + block * BYTES_OF_PRODUCT) +
                                          tokens_of(run, job) * columns * block * BYTES_OF_GRAM,
                                .codes = elements * block * passes * BYTES_OF_DESCENT};
}

void run_count_work(struct quantize_run *run)
{
    struct run_meter *m = &run->meter;
    m->total = run->activations.bytes;
    for (size_t i = 0; i < run->job_count; i++) {
        const struct search_work work = job_search_work(run, &run->jobs[i]);
        m->total += run->planning && !run->jobs[i].plan ? 0 : job_bytes(&run->jobs[i]);
        m->search += work.scales + work.codes;
    }
}

/* ---- Reports ----------------------------------------------------------------------------------------------------- */

bool run_report_progress(struct quantize_run *run, const struct weight_job *job, uint64_t bytes, double search)
{
    struct run_meter *m = &run->meter;
    const struct weight *w = job ? job->weight : NULL;
    m->done += bytes;
    m->searched += search;
    if (w)
        snprintf(m->layer, sizeof m->layer, "%.*s", (int)w->module, w->name);
    make_printable(m->layer);
    const double all = (double)m->total + m->search, share = all > 0 ? ((double)m->done + m->searched) / all : 1;
    m->share = fmax(m->share, fmin(share, 1)); /* recorded activations are read before the layers are known */
    const qobs_progress progress = {.struct_size = sizeof progress,
                                    .stage = "quantize",
                                    .bytes_done = m->done,
                                    .bytes_total = m->total,
                                    .layer = *m->layer ? m->layer : NULL,
                                    .share = m->share,
                                    .searches = m->search > 0};
    if (run->args->progress && !run->stopped && run->args->progress(run->args->context, &progress) != 0)
        run->stopped = true;
    return run->stopped;
}

int run_progress(void *context, uint64_t bytes)
{
    struct quantize_run *run = context;
    pthread_mutex_lock(&run->lock);
    run->meter.total = run->model.bytes + run->activations.bytes;
    const bool stopped = run_report_progress(run, NULL, bytes, 0);
    pthread_mutex_unlock(&run->lock);
    return stopped;
}

uint64_t slice_input_bytes(const struct row_slice *s)
{
    const struct weight *w = s->job->weight;
    const bool bytes = !s->job->plan && weight_is_contiguous(w);
    const uint64_t whole = bytes ? w->bytes : (uint64_t)weight_rows(w);
    return whole ? (uint64_t)((double)job_bytes(s->job) * (double)s->count / (double)whole) : 0;
}

int run_search_progress(struct quantize_run *run, const struct weight_job *job, uint64_t bytes, double search,
                        struct fail *f)
{
    pthread_mutex_lock(&run->lock);
    const bool stopped = run_report_progress(run, job, bytes, search);
    pthread_mutex_unlock(&run->lock);
    return stopped ? report_failure(f, QOBS_ERROR_CANCELLED, "stopped by the caller") : QOBS_OK;
}
