/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Ranges of weights: of slices, and found by search on a complete weight. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_steps.h"
#include "files/mapped.h"
#include "files/text.h"
#include "model/stored_qparams.h"
#include "qobs/stateless.h"

/* Finds the smallest and the largest number of rows or a weight. */
static int find_range(const struct weight_job *job, const qobs_tensor *value, const qobs_runtime *runtime, double *min,
                      double *max, qobs_counts *counts, qobs_error *error)
{
    float extrema[2][1]; /* large enough for the dtypes of weights */
    const qobs_minmax_args args = {.struct_size = sizeof args,
                                   .config = job->group->config,
                                   .value = value,
                                   .min = extrema[0],
                                   .max = extrema[1],
                                   .size = qobs_dtype_size(value->dtype),
                                   .counts = counts,
                                   .runtime = runtime};
    const int status = qobs_global_minmax(&args, error);
    *min = status == QOBS_OK ? number_at(extrema[0], value->dtype) : 0;
    *max = status == QOBS_OK ? number_at(extrema[1], value->dtype) : 0;
    return status;
}

int rows_failure(const struct weight_job *job, qobs_error error, struct fail *f)
{
    const struct weight *w = job->weight;
    const int64_t strides[2] = {w->row_bytes, w->column_bytes};
    const qobs_tensor whole = {.struct_size = sizeof whole,
                               .data = w->data,
                               .dtype = dtype_in_library(w->dtype),
                               .ndim = 2,
                               .shape = w->shape,
                               .strides = strides};
    double min, max;
    if (error.status == QOBS_ERROR_NONFINITE && weight_is_in_place(w)) {
        const struct weight_span all = weight_span_of(w);
        RETURN_IF_NOT_OK(mapped_borrow(all.data, all.size, f));
        find_range(job, &whole, NULL, &min, &max, NULL, &error); /* fails, too */
        mapped_release(all.data, all.size);
    }
    return weight_failure(job, &error, f);
}

int slice_range(struct engine *e, struct row_slice *s, struct workspace *work, struct fail *f)
{
    struct rows r;
    qobs_error error = {0};
    qobs_counts counts = {.struct_size = sizeof counts};
    RETURN_IF_NOT_OK(rows_open(&r, s, work, f));
    if (find_range(s->job, &r.tensor, NULL, &s->min, &s->max, &counts, &error) != QOBS_OK)
        return rows_failure(s->job, error, f);
    if (s->job->wants & WANTS_COUNTS)
        RETURN_IF_NOT_OK(e->sink->functions->counts(e->sink, s->job, &counts, f));
    return s->job->cast && !job_keeps_codes(s->job) ? cast_range(s, work, f) : QOBS_OK;
}

/* Gives the sink the counts of a searched weight and what the search has found. */
static int report_search(struct engine *e, struct weight_job *job, const qobs_tensor *value,
                         const qobs_search_report *report, const int32_t *steps, size_t count, struct fail *f)
{
    qobs_counts counts = {.struct_size = sizeof counts};
    qobs_error error = {0};
    double min, max;
    if (find_range(job, value, e->in.runtime, &min, &max, &counts, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    RETURN_IF_NOT_OK(e->sink->functions->counts(e->sink, job, &counts, f));
    return e->sink->functions->searched(e->sink, job, report, steps, count, f);
}

static int read_importance(const struct engine *e, const struct weight_job *job, float **importance, struct fail *f)
{
    const int64_t columns = job->weight->shape[1];
    if (!job->weighted)
        return QOBS_OK;
    *importance = malloc(((size_t)columns + 1) * sizeof **importance);
    return *importance ? importance_read(e->in.importance, &job->importance, columns, *importance, f)
                       : NO_MEMORY(f, "importance");
}

int job_search_range(struct engine *e, struct weight_job *job, struct fail *f)
{
    RELEASED_BY(workspace_clear) struct workspace work = {0};
    const struct row_slice all = {.job = job, .count = job->weight->shape[0]};
    struct job_range *range = &job->range;
    struct rows r;
    qobs_error error = {0};
    qobs_search_report report = {.struct_size = sizeof report};
    OWNED float *importance = NULL;
    const size_t count = job_qparams(job), columns = (size_t)job->weight->shape[1],
                 size = count * qobs_dtype_size(dtype_in_library(job->weight->dtype));
    OWNED int32_t *steps = job->wants & WANTS_COUNTS ? malloc((count + 1) * sizeof *steps) : NULL;
    range->lows = malloc(size + 1);
    range->highs = malloc(size + 1);
    if (!range->lows || !range->highs || (!steps && job->wants & WANTS_COUNTS))
        return NO_MEMORY(f, "ranges");
    RETURN_IF_NOT_OK(rows_open(&r, &all, &work, f));
    RETURN_IF_NOT_OK(read_importance(e, job, &importance, f));
    const qobs_search_args args = {.struct_size = sizeof args,
                                   .config = job->group->config,
                                   .value = &r.tensor,
                                   .importance = importance,
                                   .importance_size = importance ? columns * sizeof *importance : 0,
                                   .min = range->lows,
                                   .max = range->highs,
                                   .size = size,
                                   .best_step = steps,
                                   .best_step_size = steps ? count * sizeof *steps : 0,
                                   .report = steps ? &report : NULL,
                                   .runtime = e->in.runtime};
    if (qobs_search(&args, &error) != QOBS_OK)
        return importance && strncmp(error.message, "importance: ", 12) == 0
                   ? INVALID(f, "%.200s: importance for '%.200s' %s", importance_path(&job->importance),
                             job->weight->name, error.message + 12)
                   : weight_failure(job, &error, f);
    if (steps)
        RETURN_IF_NOT_OK(report_search(e, job, &r.tensor, &report, steps, count, f));
    double other;
    extrema_of(range->lows, r.tensor.dtype, count, &range->min, &other);
    extrema_of(range->highs, r.tensor.dtype, count, &other, &range->max);
    return QOBS_OK;
}
