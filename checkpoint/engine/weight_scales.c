/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales that need complete weights or sets: the range and the global scale that a set shares, and presets that find
 * scales and zero points instead of ranges (qobs.*). Those observe a weight as a whole, under the global scale of its
 * set, after the activations that weigh its columns. */
#include <math.h>
#include <stdlib.h>

#include "engine/engine_steps.h"
#include "files/status.h"
#include "files/text.h"
#include "model/stored_qparams.h"
#include "qobs/stateless.h"

/* ---- Sets -------------------------------------------------------------------------------------------------------- */

/* Gives the members of a set with one scale for each tensor the range of all of them. Optimal scales stay their own. */
static void share_range(const struct engine *e, struct weight_job *jobs, size_t count)
{
    double min = INFINITY, max = -INFINITY;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count; i++) {
            struct job_range *r = &jobs[i].range;
            const struct quant_args *a = jobs[i].group ? job_args(&jobs[i]) : NULL;
            if (!a || a->strategy != QUANT_TENSOR || !shares_scale(a, e->in.config->compat))
                continue;
            if (pass == 0) {
                min = fmin(min, r->min);
                max = fmax(max, r->max);
                continue;
            }
            r->min = min;
            r->max = max;
            if (r->lows) {
                stored_put_number(r->lows, dtype_in_library(jobs[i].weight->dtype), min);
                stored_put_number(r->highs, dtype_in_library(jobs[i].weight->dtype), max);
            }
        }
}

int set_share(const struct engine *e, struct weight_job *jobs, size_t count, struct fail *f)
{
    double min = INFINITY, max = -INFINITY;
    const struct weight_job *first = NULL;
    qobs_error error = {0};
    float scale;
    share_range(e, jobs, count);
    for (size_t i = 0; i < count; i++)
        if (jobs[i].group && job_args(&jobs[i])->strategy == QUANT_TENSOR_GROUP) {
            first = first ? first : &jobs[i];
            min = fmin(min, jobs[i].range.min);
            max = fmax(max, jobs[i].range.max);
        }
    if (!first)
        return QOBS_OK;
    /* Optimal scales are found in F32. */
    const qobs_dtype dtype = first->group->needs.searches_scale ? QOBS_F32 : dtype_in_library(first->weight->dtype);
    if (first->cast)
        scale = cast_global_scale(first, max);
    else if (qobs_global_scale(first->group->config, dtype, min, max, &scale, &error) != QOBS_OK)
        return weight_failure(first, &error, f);
    const float factor = job_global_factor(first, scale);
    for (size_t i = 0; i < count; i++) {
        jobs[i].range.global_scale = scale;
        jobs[i].range.global_factor = factor;
        jobs[i].range.set_amax = fmax(-min, max);
    }
    return QOBS_OK;
}

/* ---- Optimal scales ---------------------------------------------------------------------------------------------- */

/* Adds the Hessian of saved observers of the same preset and settings. */
static int merge_states(const struct weight_job *job, qobs_observer *o, struct fail *f)
{
    qobs_error error = {0};
    OWNED_OBSERVER qobs_observer *states = NULL;
    RETURN_IF_NOT_OK(saved_importance_load(job->importance.states, job->importance.state_count, &states, f));
    return qobs_observer_merge(o, (const qobs_observer *const *)&states, 1, &error) == QOBS_OK
               ? QOBS_OK
               : merge_failure(job->importance.states->path, "the observer of the weights", &error, f);
}

/* Mean squares of another source, as one token that has them. */
static int observe_means(const struct engine *e, const struct weight_job *job, qobs_observer *o, struct fail *f)
{
    const int64_t columns = job->weight->shape[1];
    qobs_error error = {0};
    OWNED float *mean = malloc(((size_t)columns + 1) * sizeof *mean);
    OWNED double *token = malloc(((size_t)columns + 1) * sizeof *token);
    if (!mean || !token)
        return NO_MEMORY(f, "importance");
    RETURN_IF_NOT_OK(importance_read(e->in.importance, &job->importance, columns, mean, f));
    for (int64_t j = 0; j < columns; j++)
        token[j] = sqrt((double)mean[j]);
    const qobs_tensor tensor = {
        .struct_size = sizeof tensor, .data = token, .dtype = QOBS_F64, .ndim = 1, .shape = &columns};
    return qobs_observer_observe_importance(o, &tensor, &error) == QOBS_OK ? QOBS_OK : weight_failure(job, &error, f);
}

static int observe_importance(const struct engine *e, const struct weight_job *job, qobs_observer *o, struct fail *f)
{
    const bool hessian = job->group->needs.hessian;
    if (!job->weighted || !job->group->needs.importance)
        return QOBS_OK;
    if (job->importance.recorded)
        return importance_observe(&e->in.importance->recordings, job->importance.recorded,
                                  job->wants & WANTS_FIRST_HALF ? FIRST_HALF : ALL_TOKENS, o, f);
    if (hessian && job->importance.states)
        return merge_states(job, o, f);
    if (hessian)
        return INVALID(f, "importance: qobs.local_hessian needs recorded activations or its own states for '%.200s'",
                       job->weight->name);
    return observe_means(e, job, o, f);
}

/* Fails if a result has another number of elements than the weight has qparams. */
static int check_result(const struct weight_job *job, const qobs_result *result, struct fail *f)
{
    const size_t count = result->size / qobs_dtype_size(result->dtype);
    return count == job_qparams(job) ? QOBS_OK
                                     : INVALID(f, "tensor '%.200s': %s has %zu numbers, the weight needs %zu",
                                               job->weight->name, result->name, count, job_qparams(job));
}

/* Fails if there is importance of the weight and the search could not use it. */
static int check_used(const struct weight_job *job, const qobs_search_report *report, struct fail *f)
{
    if (!job->weighted || !job->group->needs.importance || report->weighted)
        return QOBS_OK;
    return INVALID(f, "%.200s: importance for '%.200s' with %lld columns: %s", importance_path(&job->importance),
                   job->weight->name, (long long)job->weight->shape[1],
                   report->fallback ? report->fallback : "cannot be used");
}

static int read_qparams(struct engine *e, struct weight_job *job, const qobs_observer *o, struct fail *f)
{
    qobs_result scale = {.struct_size = sizeof scale}, zero_point = scale;
    qobs_search_report report = {.struct_size = sizeof report};
    qobs_error error = {0};
    if (qobs_observer_result_find(o, "scale", &scale, &error) != QOBS_OK ||
        qobs_observer_result_find(o, "zero_point", &zero_point, &error) != QOBS_OK ||
        qobs_observer_search_report(o, &report, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    RETURN_IF_NOT_OK(check_used(job, &report, f));
    RETURN_IF_NOT_OK(check_result(job, &scale, f));
    RETURN_IF_NOT_OK(check_result(job, &zero_point, f));
    job->qparams.scale = malloc(scale.size + 1);
    job->qparams.zero_point = malloc(zero_point.size + 1);
    if (!job->qparams.scale || !job->qparams.zero_point)
        return NO_MEMORY(f, "scales");
    const qobs_qparam_buffers out = {.struct_size = sizeof out,
                                     .scale = job->qparams.scale,
                                     .scale_size = scale.size,
                                     .zero_point = job->qparams.zero_point,
                                     .zero_point_size = zero_point.size};
    job->qparams.scale_dtype = scale.dtype;
    job->qparams.zero_point_dtype = zero_point.dtype;
    job->result.search_error_before = report.error_before;
    job->result.search_error = report.error;
    job->weighted = report.weighted;
    if (job->wants & WANTS_COUNTS)
        RETURN_IF_NOT_OK(e->sink->functions->searched(e->sink, job, &report, NULL, 0, f));
    return qobs_qparams_from_observer(o, &out, &error) == QOBS_OK ? QOBS_OK : weight_failure(job, &error, f);
}

/* Takes what the descent over codes needs. */
static int read_hessian(struct weight_job *job, const qobs_observer *o, struct fail *f)
{
    qobs_result info = {.struct_size = sizeof info};
    qobs_error error = {0};
    if (!job_rounds(job) || !job->weighted)
        return QOBS_OK;
    if (qobs_observer_result_find(o, "hessian_sum", &info, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    job->hessian.sum = malloc(info.size + 1);
    if (!job->hessian.sum)
        return NO_MEMORY(f, "the Hessian");
    for (int i = 0; i < 3; i++)
        job->hessian.shape[i] = info.shape[i];
    if (qobs_observer_read(o, "hessian_sum", job->hessian.sum, info.size, &error) != QOBS_OK ||
        qobs_observer_read(o, "hessian_count", &job->hessian.count, sizeof job->hessian.count, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    return QOBS_OK;
}

int job_find_scales(struct engine *e, struct weight_job *job, const qobs_tensor *weight, struct fail *f)
{
    const bool global = job_args(job)->strategy == QUANT_TENSOR_GROUP;
    OWNED_OBSERVER qobs_observer *o = NULL;
    qobs_error error = {0};
    if (qobs_observer_create(&o, job->group->config, e->in.runtime, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    RETURN_IF_NOT_OK(observe_importance(e, job, o, f));
    if ((global && qobs_observer_set_global_amax(o, job->range.set_amax, &error) != QOBS_OK) ||
        qobs_observer_observe(o, weight, NULL, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    RETURN_IF_NOT_OK(read_qparams(e, job, o, f));
    return read_hessian(job, o, f);
}
