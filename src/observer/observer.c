/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The life of an observer. */
#include "observer/observer.h"

#include "base/counts.h"
#include "kernels/dispatch.h"
#include "base/error.h"

int qobs_allocate_ranges(const struct runtime *runtime, struct ranges *ranges, qobs_dtype dtype, size_t n, qobs_error *error)
{
    const size_t half = (n * qobs_dtype_size(dtype) + 63) / 64 * 64;
    ranges->size = 2 * half;
    ranges->min = qobs_allocate_state(runtime, ranges->size);
    if (!ranges->min) {
        ranges->size = 0;
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes of ranges", 2 * half);
    }
    ranges->max = ranges->min + half;
    return QOBS_OK;
}

void qobs_release_ranges(const struct runtime *runtime, struct ranges *ranges)
{
    qobs_release(runtime, ranges->min, ranges->size);
    *ranges = (struct ranges){0};
}

int qobs_allocate_sums(const struct runtime *runtime, struct kept *kept, size_t count, qobs_error *error)
{
    kept->sums = qobs_allocate_state(runtime, count * sizeof *kept->sums);
    if (!kept->sums)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes of errors", count * sizeof *kept->sums);
    memset(kept->sums, 0, count * sizeof *kept->sums);
    kept->sums_count = count;
    return QOBS_OK;
}

void qobs_release_kept(const struct runtime *runtime, struct kept *kept)
{
    qobs_release(runtime, kept->sums, kept->sums_count * sizeof *kept->sums);
    kept->sums = NULL;
    kept->sums_count = 0;
    qobs_release_ranges(runtime, &kept->state);
    qobs_release_ranges(runtime, &kept->batch);
    qobs_mode_release(runtime, &kept->mode_count);
    qobs_histogram_release(runtime, &kept->histogram);
}

static void release_all(qobs_observer *o)
{
    qobs_release_kept(&o->runtime, &o->kept);
    qobs_importance_release(&o->runtime, &o->importance);
    qobs_search_record_release(&o->runtime, &o->searched);
    qobs_release(&o->runtime, o->given.amax, o->given.count * sizeof *o->given.amax);
    qobs_release(&o->runtime, o->given.weight, o->given.weights * sizeof *o->given.weight);
}

void qobs_observer_make(qobs_observer *o, const qobs_config *config, const struct runtime *runtime)
{
    *o = (qobs_observer){
        .config = *config,
        .runtime = *runtime,
        .kernels = qobs_kernels_active(),
        .layout = {.dtype = QOBS_F32, .qparams = 1},
    };
    qobs_stages_of(&o->config, &o->stages);
    o->layout.scale = o->stages.formula.params.shape_without_data;
}

int qobs_observer_create(qobs_observer **result, const qobs_config *config, const qobs_runtime *given, qobs_error *error)
{
    struct runtime runtime;
    if (!result)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    int status = qobs_config_check(config, error);
    if (status == QOBS_OK)
        status = qobs_runtime_resolve(&runtime, given, error);
    if (status != QOBS_OK)
        return status;
    qobs_observer *o = qobs_allocate(&runtime, sizeof *o);
    if (!o)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes", sizeof *o);
    qobs_observer_make(o, config, &runtime);
    *result = o;
    return qobs_succeed(error);
}

void qobs_observer_reset(qobs_observer *o)
{
    if (!o)
        return;
    release_all(o);
    const qobs_observer old = *o;
    qobs_observer_make(o, &old.config, &old.runtime);
    o->kernels = old.kernels;
}

void qobs_observer_destroy(qobs_observer *o)
{
    if (!o)
        return;
    release_all(o);
    const struct runtime runtime = o->runtime;
    if (!runtime.region) /* else it lies in the caller's memory */
        qobs_release(&runtime, o, sizeof *o);
}

int qobs_observer_counts(const qobs_observer *o, qobs_counts *counts, qobs_error *error)
{
    if (!o)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    const int status = counts_check(counts, error);
    if (status != QOBS_OK)
        return status;
    counts_give(&o->counts, counts);
    return qobs_succeed(error);
}
