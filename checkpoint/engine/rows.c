/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Rows of a weight as the library takes them, and memory for what is made of them. */
#include <stdlib.h>

#include "engine/engine_steps.h"
#include "files/bus_errors.h"
#include "files/text.h"

void *workspace_reserve(struct workspace *w, enum workspace_part part, size_t size)
{
    if (w->size[part] < size || !w->data[part]) {
        free(w->data[part]);
        w->data[part] = malloc(size + 64);
        w->size[part] = w->data[part] ? size : 0;
    }
    return w->data[part];
}

void workspace_clear(struct workspace *w)
{
    for (int part = 0; part < WORK_PARTS; part++)
        free(w->data[part]);
}

const struct quant_args *job_args(const struct weight_job *job) { return &job->group->quant->weights; }

size_t job_qparams(const struct weight_job *job)
{
    return (size_t)((job->weight->shape[0] + job->unit_rows - 1) / job->unit_rows * job->unit_qparams);
}

bool job_takes_rows(const struct weight_job *job)
{
    return job->wants & WANTS_ROWS || !weight_is_contiguous(job->weight);
}

uint64_t job_bytes(const struct weight_job *job)
{
    const uint64_t source = job->weight->source->stored->end - job->weight->source->stored->begin;
    return !job->wants ? 0 : job->weight->bytes < source ? job->weight->bytes : source;
}

uint64_t slice_bytes(const struct row_slice *s)
{
    const struct weight *w = s->job->weight;
    const bool bytes = !s->job->group && !job_takes_rows(s->job);
    const uint64_t whole = bytes ? w->bytes : (uint64_t)weight_rows(w);
    return whole ? (uint64_t)((double)job_bytes(s->job) * (double)s->count / (double)whole) : 0;
}

int weight_failure(const struct weight_job *job, const qobs_error *error, struct fail *f)
{
    return report_failure(f, error->status, "tensor '%.150s': %.300s", job->weight->name, error->message);
}

static int read_rows(const struct row_slice *s, void *out, struct fail *f)
{
    const struct weight *w = s->job->weight;
    if (!out)
        return NO_MEMORY(f, "rows");
    return weight_read_rows(w, s->first, s->count, out)
               ? QOBS_OK
               : SYSTEM_FAILURE(f, "tensor '%.150s': its file became shorter while it was read", w->name);
}

/* Rows are used in place only where a missing page is no signal. */
int rows_open(struct rows *r, const struct row_slice *s, struct workspace *work, struct fail *f)
{
    const struct weight *w = s->job->weight;
    const qobs_dtype dtype = dtype_in_library(w->dtype);
    const int64_t element = (int64_t)qobs_dtype_size(dtype);
    const void *data = w->data + s->first * w->row_bytes;
    *r = (struct rows){.shape = {s->count, w->shape[1]}, .strides = {w->row_bytes, element}};
    if (!weight_is_in_place(w) || !bus_errors_are_handled()) {
        void *copy = workspace_reserve(work, WORK_ROWS, (size_t)(s->count * w->shape[1] * element));
        RETURN_IF_NOT_OK(read_rows(s, copy, f));
        data = copy;
        r->strides[0] = w->shape[1] * element;
    }
    r->tensor = (qobs_tensor){.struct_size = sizeof r->tensor,
                              .data = (void *)(uintptr_t)data,
                              .dtype = dtype,
                              .ndim = 2,
                              .shape = r->shape,
                              .strides = r->strides};
    return QOBS_OK;
}

int slice_copy(struct engine *e, struct row_slice *s, struct workspace *work, struct fail *f)
{
    const struct weight *w = s->job->weight;
    struct sink *sink = e->sink;
    if (s->job->wants & WANTS_ROWS) {
        struct rows r;
        RETURN_IF_NOT_OK(rows_open(&r, s, work, f));
        return sink->functions->rows(sink, s, &r, work, f);
    }
    if (weight_is_contiguous(w))
        return sink->functions->copy(sink, s->job, (uint64_t)s->first, w->data + s->first, (size_t)s->count, f);
    const size_t row = (size_t)weight_columns(w) * dtype_size(w->dtype), size = row * (size_t)s->count;
    void *numbers = workspace_reserve(work, WORK_ROWS, size);
    RETURN_IF_NOT_OK(read_rows(s, numbers, f));
    return sink->functions->copy(sink, s->job, (uint64_t)s->first * row, numbers, size, f);
}
