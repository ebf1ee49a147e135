/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "quantize/gguf_sink.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "quantize/gguf_weights.h"

int64_t gguf_matrix_rows(const struct gguf_tensor *t) { return t->ndim > 1 ? t->shape[t->ndim - 2] : 1; }

uint64_t gguf_matrices(const struct gguf_tensor *t)
{
    uint64_t matrices = 1;
    for (int d = 0; d + 2 < t->ndim; d++)
        matrices *= (uint64_t)t->shape[d];
    return matrices;
}

static int wants(struct sink *sink, const struct weight_job *job, unsigned *wanted, struct fail *f)
{
    const struct gguf_sink *s = (struct gguf_sink *)sink;
    (void)f;
    *wanted = !gguf_choice_changes(&s->choices[job->index]) ? WANTS_COPY
              : s->importance[job->index].rounded           ? WANTS_ROWS | WANTS_MANY_ROWS
                                                            : WANTS_ROWS;
    return QOBS_OK;
}

/* Reads the importance of all matrices of a tensor. */
static int read_means(const struct gguf_sink *s, const struct gguf_tensor *t, struct gguf_importance *of,
                      struct fail *f)
{
    const int64_t columns = t->shape[t->ndim - 1];
    const uint64_t matrices = gguf_matrices(t);
    of->means = malloc((size_t)columns * matrices * sizeof *of->means + 1);
    if (!of->means)
        return NO_MEMORY(f, "importance");
    for (uint64_t m = 0; m < matrices; m++) {
        float *const mean = of->means + m * (uint64_t)columns;
        RETURN_IF_NOT_OK(of->entry ? imatrix_read(of->file, of->entry, m, columns, mean, f)
                                   : gguf_states_means(gguf_states_find(&s->states, t->name, m), columns, mean, f));
    }
    return QOBS_OK;
}

static int begin(struct sink *sink, const struct weight_job *job, struct fail *f)
{
    const struct gguf_sink *s = (struct gguf_sink *)sink;
    const struct gguf_tensor *t = s->choices[job->index].tensor;
    struct gguf_importance *of = &s->importance[job->index];
    const uint64_t matrices = gguf_matrices(t);
    if (of->entry || of->stated)
        RETURN_IF_NOT_OK(read_means(s, t, of, f));
    if (!of->rounded)
        return QOBS_OK;
    of->hessians = calloc(matrices + 1, sizeof *of->hessians);
    if (!of->hessians)
        return NO_MEMORY(f, "Hessians");
    for (uint64_t m = 0; m < matrices; m++)
        of->hessians[m] =
            (struct gguf_hessian){.state = gguf_states_find(&s->states, t->name, m), .left = gguf_matrix_rows(t)};
    return QOBS_OK;
}

void gguf_importance_free(struct gguf_importance *of, uint64_t matrices)
{
    for (uint64_t m = 0; of->hessians && m < matrices; m++)
        free(of->hessians[m].sum);
    free(of->hessians);
    free(of->means);
    of->hessians = NULL;
    of->means = NULL;
}

static int done(struct sink *sink, struct weight_job *job, struct fail *f)
{
    const struct gguf_sink *s = (struct gguf_sink *)sink;
    const double *const sums = job->result.sums;
    (void)f;
    gguf_importance_free(&s->importance[job->index], gguf_matrices(s->choices[job->index].tensor));
    s->errors[job->index] = (struct gguf_error){job->result.error, job->result.energy, sums[0], sums[1], sums[2]};
    return QOBS_OK;
}

static int put(const struct gguf_sink *s, size_t tensor, uint64_t offset, const void *data, size_t bytes,
               struct fail *f)
{
    if (output_write(s->out, data, bytes, s->data_start + s->tensors[tensor].offset + offset) != 0)
        return SYSTEM_FAILURE(f, "%s: cannot write: %s", s->out->path, strerror(errno));
    return QOBS_OK;
}

static int copy(struct sink *sink, const struct weight_job *job, uint64_t offset, const void *data, size_t bytes,
                struct fail *f)
{
    return put((struct gguf_sink *)sink, job->index, offset, data, bytes, f);
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Rows of a slice that belong to one matrix, and their blocks. */
struct piece {
    int64_t first, count, columns;
    const unsigned char *value;
    qobs_dtype dtype;
    unsigned char *blocks;
    size_t block_bytes;
};

static int failure(const struct piece *p, const struct weight_job *job, const qobs_error *error, struct fail *f)
{
    if (error->status == QOBS_ERROR_NONFINITE && p->first > 0)
        return report_failure(f, error->status, "tensor '%.150s': from row %lld on: %.250s", job->weight->name,
                              (long long)p->first, error->message);
    return report_failure(f, error->status, "tensor '%.150s': %.300s", job->weight->name, error->message);
}

/* Makes blocks, with a Hessian by descent. */
static int make_blocks(const struct gguf_sink *s, struct row_slice *slice, const struct piece *p,
                       const qobs_tensor *hessian, int64_t tokens, struct fail *f)
{
    const struct weight_job *job = slice->job;
    const struct gguf_choice *c = &s->choices[job->index];
    const float *means = s->importance[job->index].means;
    const int64_t matrix = p->first / gguf_matrix_rows(c->tensor);
    qobs_error error = {0};
    qobs_round_report report = {.struct_size = sizeof report};
    const qobs_gguf_quantize_args args = {.struct_size = sizeof args,
                                          .type = c->type.name,
                                          .dtype = p->dtype,
                                          .rows = p->count,
                                          .columns = p->columns,
                                          .value = p->value,
                                          .importance = means ? means + matrix * p->columns : NULL,
                                          .out = p->blocks,
                                          .out_size = p->block_bytes,
                                          .search = s->optimal ? "optimal" : "ggml",
                                          .hessian = hessian,
                                          .hessian_count = tokens,
                                          .report = &report};
    if (qobs_gguf_quantize(&args, &error) != QOBS_OK)
        return failure(p, job, &error, f);
    slice->sums[0] += report.error_before;
    slice->sums[1] += report.error;
    slice->sums[2] += (double)report.changed;
    return QOBS_OK;
}

static int quantize(struct gguf_sink *s, struct row_slice *slice, const struct piece *p, struct fail *f)
{
    const struct gguf_importance *of = &s->importance[slice->job->index];
    const struct gguf_choice *c = &s->choices[slice->job->index];
    struct gguf_hessian *h = of->hessians ? of->hessians + p->first / gguf_matrix_rows(c->tensor) : NULL;
    if (!h || !h->state)
        return make_blocks(s, slice, p, NULL, 0, f);
    RETURN_IF_NOT_OK(gguf_hessian_take(&s->states, h, p->columns, f));
    const qobs_tensor hessian = {
        .struct_size = sizeof hessian, .data = h->sum, .dtype = QOBS_F64, .ndim = 3, .shape = h->shape};
    const int status = make_blocks(s, slice, p, &hessian, h->tokens, f);
    gguf_hessian_give(&s->states, h, p->count);
    return status;
}

static int read_numbers(const char *type, const struct piece *p, const void *blocks, size_t size, float *numbers,
                        const struct weight_job *job, struct fail *f)
{
    qobs_error error = {0};
    const int status = gguf_read_numbers(type, p->count, p->columns, blocks, size, numbers, &error);
    return status == QOBS_OK ? QOBS_OK : failure(p, job, &error, f);
}

int gguf_add_error(struct gguf_error *sums, const float *x, const float *y, int64_t count, qobs_error *error)
{
    const qobs_tensor value = {sizeof value, (void *)(uintptr_t)x, QOBS_F32, 1, &count, NULL};
    const qobs_tensor other = {sizeof other, (void *)(uintptr_t)y, QOBS_F32, 1, &count, NULL};
    double squared_error = 0, energy = 0;
    const int status = qobs_measure_error(&value, &other, &squared_error, &energy, error);
    sums->error += squared_error;
    sums->energy += energy;
    return status;
}

/* Adds up the error of what the blocks of a slice stand for. */
static int measure(const struct gguf_sink *s, struct row_slice *slice, const struct piece *p, struct workspace *work,
                   struct fail *f)
{
    const size_t count = (size_t)(p->count * p->columns);
    float *numbers = workspace_reserve(work, WORK_PACKED, 2 * count * sizeof *numbers);
    const float *source = (const float *)(const void *)p->value;
    if (!numbers)
        return NO_MEMORY(f, "numbers");
    RETURN_IF_NOT_OK(
        read_numbers(s->choices[slice->job->index].type.name, p, p->blocks, p->block_bytes, numbers, slice->job, f));
    if (p->dtype != QOBS_F32) {
        RETURN_IF_NOT_OK(read_numbers(p->dtype == QOBS_F16 ? "F16" : "BF16", p, p->value,
                                      count * qobs_dtype_size(p->dtype), numbers + count, slice->job, f));
        source = numbers + count;
    }
    struct gguf_error sums = {.error = slice->error, .energy = slice->energy};
    qobs_error error = {0};
    if (gguf_add_error(&sums, source, numbers, (int64_t)count, &error) != QOBS_OK)
        return failure(p, slice->job, &error, f);
    slice->error = sums.error;
    slice->energy = sums.energy;
    return QOBS_OK;
}

static int rows(struct sink *sink, struct row_slice *slice, const struct rows *r, struct workspace *work,
                struct fail *f)
{
    struct gguf_sink *s = (struct gguf_sink *)sink;
    const struct gguf_choice *c = &s->choices[slice->job->index];
    const int64_t columns = r->shape[1], in_matrix = gguf_matrix_rows(c->tensor), end = slice->first + slice->count;
    const size_t row = (size_t)(columns / c->type.block_elements) * c->type.block_size;
    struct piece all = {.first = slice->first,
                        .count = slice->count,
                        .columns = columns,
                        .value = r->tensor.data,
                        .dtype = r->tensor.dtype,
                        .blocks = workspace_reserve(work, WORK_SINK, row * (size_t)slice->count),
                        .block_bytes = row * (size_t)slice->count};
    if (!all.blocks)
        return NO_MEMORY(f, "blocks");
    for (int64_t first = slice->first, next; first < end; first = next) {
        const int64_t end_of_matrix = (first / in_matrix + 1) * in_matrix;
        struct piece p = all;
        next = end_of_matrix < end ? end_of_matrix : end;
        p.first = first;
        p.count = next - first;
        p.value += (first - slice->first) * r->strides[0];
        p.blocks += (size_t)(first - slice->first) * row;
        p.block_bytes = (size_t)p.count * row;
        RETURN_IF_NOT_OK(quantize(s, slice, &p, f));
    }
    RETURN_IF_NOT_OK(put(s, slice->job->index, (uint64_t)slice->first * row, all.blocks, all.block_bytes, f));
    return measure(s, slice, &all, work, f);
}

void gguf_sink_open(struct gguf_sink *s)
{
    static const struct sink_functions functions = {
        .wants = wants, .begin = begin, .done = done, .copy = copy, .rows = rows};
    s->sink.functions = &functions;
}
