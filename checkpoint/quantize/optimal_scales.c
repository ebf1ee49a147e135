/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Presets that find scales and zero points instead of ranges (qobs.*). A weight is observed as a whole, under the
 * global scale of its set, after the activations that weigh its columns. */
#include <math.h>
#include <stdlib.h>

#include "files/status.h"
#include "files/text.h"
#include "quantize/run.h"

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
static int observe_means(const struct quantize_run *run, const struct weight_job *job, qobs_observer *o, struct fail *f)
{
    const int64_t columns = job->weight->shape[1];
    qobs_error error = {0};
    OWNED float *mean = malloc(((size_t)columns + 1) * sizeof *mean);
    OWNED double *token = malloc(((size_t)columns + 1) * sizeof *token);
    if (!mean || !token)
        return NO_MEMORY(f, "importance");
    RETURN_IF_NOT_OK(importance_read(&run->importance, &job->importance, columns, mean, f));
    for (int64_t j = 0; j < columns; j++)
        token[j] = sqrt((double)mean[j]);
    const qobs_tensor tensor = {
        .struct_size = sizeof tensor, .data = token, .dtype = QOBS_F64, .ndim = 1, .shape = &columns};
    return qobs_observer_observe_importance(o, &tensor, &error) == QOBS_OK ? QOBS_OK : weight_failure(job, &error, f);
}

static int observe_importance(const struct quantize_run *run, const struct weight_job *job, qobs_observer *o,
                              struct fail *f)
{
    const bool hessian = job->plan->needs.hessian;
    if (!job->weighted || !job->plan->needs.importance)
        return QOBS_OK;
    if (job->importance.recorded)
        return importance_observe(&run->importance.recordings, job->importance.recorded,
                                  run->costs && run->costs[job->index].tokens > 0 ? FIRST_HALF : ALL_TOKENS, o, f);
    if (hessian && job->importance.states)
        return merge_states(job, o, f);
    if (hessian)
        return INVALID(f, "importance: qobs.local_hessian needs recorded activations or its own states for '%.200s'",
                       job->weight->name);
    return observe_means(run, job, o, f);
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
    if (!job->weighted || !job->plan->needs.importance || report->weighted)
        return QOBS_OK;
    return INVALID(f, "%.200s: importance for '%.200s' with %lld columns: %s", importance_path(&job->importance),
                   job->weight->name, (long long)job->weight->shape[1],
                   report->fallback ? report->fallback : "cannot be used");
}

static int read_qparams(struct weight_job *job, const qobs_observer *o, struct fail *f)
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
    job->scale = malloc(scale.size + 1);
    job->zero_point = malloc(zero_point.size + 1);
    if (!job->scale || !job->zero_point)
        return NO_MEMORY(f, "scales");
    const qobs_qparam_buffers out = {.struct_size = sizeof out,
                                     .scale = job->scale,
                                     .scale_size = scale.size,
                                     .zero_point = job->zero_point,
                                     .zero_point_size = zero_point.size};
    job->scale_dtype = scale.dtype;
    job->zero_point_dtype = zero_point.dtype;
    job->search_error_before = report.error_before;
    job->search_error = report.error;
    job->weighted = report.weighted;
    if (job->statistics)
        job->statistics->search = report;
    return qobs_observer_qparams(o, &out, &error) == QOBS_OK ? QOBS_OK : weight_failure(job, &error, f);
}

/* Takes what the descent over codes needs. */
static int read_hessian(struct weight_job *job, const qobs_observer *o, struct fail *f)
{
    qobs_result info = {.struct_size = sizeof info};
    qobs_error error = {0};
    if (!job->plan->descends || !job->weighted)
        return QOBS_OK;
    if (qobs_observer_result_find(o, "hessian_sum", &info, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    job->hessian = malloc(info.size + 1);
    if (!job->hessian)
        return NO_MEMORY(f, "the Hessian");
    for (int i = 0; i < 3; i++)
        job->hessian_shape[i] = info.shape[i];
    if (qobs_observer_read(o, "hessian_sum", job->hessian, info.size, &error) != QOBS_OK ||
        qobs_observer_read(o, "hessian_count", &job->hessian_count, sizeof job->hessian_count, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    return QOBS_OK;
}

int job_find_scales(struct quantize_run *run, struct weight_job *job, const qobs_tensor *weight, struct fail *f)
{
    const bool global = job->plan->group->weights.strategy == QUANT_TENSOR_GROUP;
    OWNED_OBSERVER qobs_observer *o = NULL;
    qobs_error error = {0};
    if (qobs_observer_create(&o, job->plan->config, run->args->runtime, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    RETURN_IF_NOT_OK(observe_importance(run, job, o, f));
    if ((global && qobs_observer_set_global_amax(o, job->set_amax, &error) != QOBS_OK) ||
        qobs_observer_observe(o, weight, NULL, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    RETURN_IF_NOT_OK(read_qparams(job, o, f));
    return read_hessian(job, o, f);
}
