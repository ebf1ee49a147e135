/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Cuts jobs into slices and runs a pass over them on all threads. */
#include <math.h>
#include <stdlib.h>

#include "files/text.h"
#include "quantize/run.h"

/* Bytes of a slice, which with its codes fits L2. */
enum { SLICE_BYTES = 1 << 18, COPY_BYTES = 1 << 22 };

/* ---- Slices ------------------------------------------------------------------------------------------------------ */

static int add_slice(struct quantize_run *run, struct weight_job *job, int64_t first, int64_t count, struct fail *f)
{
    const struct row_slice s = {.job = job, .first = first, .count = count, .min = INFINITY, .max = -INFINITY};
    return list_append(&run->slices, &run->slice_count, sizeof s, &s) ? QOBS_OK : NO_MEMORY(f, "the slices");
}

/* Slices have whole units, and 32 rows because packed zero points of 32 rows fill words. */
int cut_rows(struct quantize_run *run, struct weight_job *job, struct fail *f)
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

int cut_bytes(struct quantize_run *run, struct weight_job *job, struct fail *f)
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
    else if (run->pass != slice_range && !run->slices[index].job->descended)
        run_report_progress(run, run->slices[index].job, slice_input_bytes(&run->slices[index]), 0);
    if (work) {
        work->next = run->free_workspaces;
        run->free_workspaces = work;
    }
    pthread_mutex_unlock(&run->lock);
}

int run_pass(struct quantize_run *run, slice_pass *pass, struct fail *f)
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
