/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "calibrate/scale_sink.h"

#include <math.h>
#include <stdlib.h>

#include "model/stored_qparams.h"

static int put(void *context, const struct output_tensor *t, uint64_t offset, const void *data, size_t bytes,
               struct fail *f)
{
    struct scale_sink *s = context;
    return st_writer_put(&s->file, (size_t)(t - s->writer.layout->tensors), offset, data, bytes, f);
}

static struct scale_statistics *statistics_of(struct sink *sink, const struct weight_job *job)
{
    return &((struct scale_sink *)sink)->statistics[job->index];
}

static int wants(struct sink *sink, const struct weight_job *job, unsigned *wanted, struct fail *f)
{
    (void)sink;
    (void)f;
    *wanted = job->group ? WANTS_SCALES | WANTS_COUNTS : 0;
    return QOBS_OK;
}

static int done(struct sink *sink, struct weight_job *job, struct fail *f)
{
    return layout_put_small(&((struct scale_sink *)sink)->writer, job, f);
}

static int counts(struct sink *sink, const struct weight_job *job, const qobs_counts *counted, struct fail *f)
{
    struct scale_sink *s = (struct scale_sink *)sink;
    qobs_counts *sum = &statistics_of(sink, job)->counts;
    (void)f;
    pthread_mutex_lock(&s->lock);
    sum->nan += counted->nan;
    sum->inf += counted->inf;
    pthread_mutex_unlock(&s->lock);
    return QOBS_OK;
}

/* Counts how often each step was the best one, if steps are a list that all qparams share. */
static int searched(struct sink *sink, const struct weight_job *job, const qobs_search_report *report,
                    const int32_t *steps, size_t count, struct fail *f)
{
    struct scale_statistics *s = statistics_of(sink, job);
    s->search = *report;
    if (!steps || report->steps == 0)
        return QOBS_OK;
    s->candidates = calloc((size_t)report->steps + 1, sizeof *s->candidates);
    if (!s->candidates)
        return NO_MEMORY(f, "candidates");
    for (size_t i = 0; i < count; i++)
        s->candidates[steps[i] < 0 ? report->steps : steps[i]]++;
    return QOBS_OK;
}

static int scales(struct sink *sink, const struct row_slice *slice, const struct slice_qparams *q,
                  struct workspace *work, struct fail *f)
{
    struct scale_sink *s = (struct scale_sink *)sink;
    struct scale_statistics *of_weight = statistics_of(sink, slice->job);
    double min, max;
    extrema_of(q->scale, q->scale_dtype, (size_t)q->count, &min, &max);
    pthread_mutex_lock(&s->lock);
    of_weight->min_scale = fmin(of_weight->min_scale, min);
    of_weight->max_scale = fmax(of_weight->max_scale, max);
    pthread_mutex_unlock(&s->lock);
    return layout_put_scales(&s->writer, slice, q, work, f);
}

int scale_sink_open(struct scale_sink *s, const struct output_layout *layout,
                    const struct activation_scales *activations, size_t count, struct fail *f)
{
    static const struct sink_functions functions = {
        .wants = wants, .done = done, .searched = searched, .counts = counts, .scales = scales};
    s->sink.functions = &functions;
    s->writer = (struct layout_writer){layout, activations, CONTENTS_SCALES, put, s};
    s->statistics = calloc(count + 1, sizeof *s->statistics);
    if (!s->statistics)
        return NO_MEMORY(f, "the statistics");
    s->count = count;
    pthread_mutex_init(&s->lock, NULL);
    for (size_t i = 0; i < count; i++)
        s->statistics[i] = (struct scale_statistics){.min_scale = INFINITY, .max_scale = -INFINITY};
    return QOBS_OK;
}

void scale_sink_close(struct scale_sink *s)
{
    st_writer_abort(&s->file);
    for (size_t i = 0; i < s->count; i++)
        free(s->statistics[i].candidates);
    if (s->statistics)
        pthread_mutex_destroy(&s->lock);
    free(s->statistics);
}
