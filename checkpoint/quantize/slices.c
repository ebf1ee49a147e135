/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One slice of a weight: range, qparams, codes, packed codes, and what is written of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "qobs/stateless.h"
#include "quantize/run.h"
#include "model/stored_qparams.h"

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

int weight_failure(const struct weight_job *job, const qobs_error *error, struct fail *f)
{
    return report_failure(f, error->status, "tensor '%.150s': %.300s", job->weight->name, error->message);
}

static int open_rows(struct rows *r, const struct row_slice *s, struct workspace *work, struct fail *f)
{
    const struct weight *w = s->job->weight;
    const qobs_dtype dtype = dtype_in_library(w->dtype);
    const int64_t element = (int64_t)qobs_dtype_size(dtype);
    const void *data = w->data + s->first * w->row_bytes;
    *r = (struct rows){.shape = {s->count, w->shape[1]}, .strides = {w->row_bytes, element}};
    if (!weight_is_in_place(w)) {
        void *copy = workspace_reserve(work, WORK_ROWS, (size_t)(s->count * w->shape[1] * element));
        if (!copy)
            return NO_MEMORY(f, "rows");
        weight_read_rows(w, s->first, s->count, copy);
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

/* ---- Ranges ------------------------------------------------------------------------------------------------------ */

/* Finds the smallest and the largest number of rows or a weight. */
static int find_range(const struct weight_job *job, const qobs_tensor *value, const qobs_runtime *runtime, double *min,
                      double *max, qobs_counts *counts, qobs_error *error)
{
    float extrema[2][1]; /* large enough for the dtypes of weights */
    const qobs_minmax_args args = {.struct_size = sizeof args,
                                   .config = job->plan->config,
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

/* An error of the library states the place of NaN in the rows it was given. This makes the message again for the
 * complete weight. */
static int rows_failure(const struct weight_job *job, qobs_error error, struct fail *f)
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
    if (error.status == QOBS_ERROR_NONFINITE && weight_is_in_place(w))
        find_range(job, &whole, NULL, &min, &max, NULL, &error); /* fails, too */
    return weight_failure(job, &error, f);
}

/* Adds the counts of NaN and infinity in rows to the statistics of their weight. */
static void add_counts(struct quantize_run *run, const struct weight_job *job, const qobs_counts *counts)
{
    if (!job->statistics)
        return;
    pthread_mutex_lock(&run->lock);
    job->statistics->counts.nan += counts->nan;
    job->statistics->counts.inf += counts->inf;
    pthread_mutex_unlock(&run->lock);
}

int slice_range(struct quantize_run *run, struct row_slice *s, struct workspace *work, struct fail *f)
{
    struct rows r;
    qobs_error error = {0};
    qobs_counts counts = {.struct_size = sizeof counts};
    RETURN_IF_NOT_OK(open_rows(&r, s, work, f));
    if (find_range(s->job, &r.tensor, NULL, &s->min, &s->max, &counts, &error) != QOBS_OK)
        return rows_failure(s->job, error, f);
    add_counts(run, s->job, &counts);
    return QOBS_OK;
}

size_t job_qparams(const struct weight_job *job)
{
    return (size_t)((job->weight->shape[0] + job->unit_rows - 1) / job->unit_rows * job->unit_qparams);
}

/* Counts how often each step was the best one, if steps are a list that all qparams share. */
static int count_candidates(struct quantize_run *run, struct weight_job *job, const qobs_tensor *value,
                            const int32_t *steps, size_t count, struct fail *f)
{
    struct job_statistics *s = job->statistics;
    qobs_counts counts = {.struct_size = sizeof counts};
    qobs_error error = {0};
    double min, max;
    if (find_range(job, value, run->args->runtime, &min, &max, &counts, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    add_counts(run, job, &counts);
    if (s->search.steps == 0)
        return QOBS_OK;
    s->candidates = calloc((size_t)s->search.steps + 1, sizeof *s->candidates);
    if (!s->candidates)
        return NO_MEMORY(f, "candidates");
    for (size_t i = 0; i < count; i++)
        s->candidates[steps[i] < 0 ? s->search.steps : steps[i]]++;
    return QOBS_OK;
}

int job_search(struct quantize_run *run, struct weight_job *job, struct fail *f)
{
    RELEASED_BY(workspace_clear) struct workspace work = {0};
    struct row_slice all = {.job = job, .count = job->weight->shape[0]};
    struct rows r;
    qobs_error error = {0};
    OWNED float *importance = NULL;
    const size_t count = job_qparams(job), columns = (size_t)job->weight->shape[1],
                 size = count * qobs_dtype_size(dtype_in_library(job->weight->dtype));
    OWNED int32_t *steps = job->statistics ? malloc((count + 1) * sizeof *steps) : NULL;
    job->search_min = malloc(size + 1);
    job->search_max = malloc(size + 1);
    if (job->statistics)
        job->statistics->search.struct_size = sizeof job->statistics->search;
    if (!job->search_min || !job->search_max || (!steps && job->statistics))
        return NO_MEMORY(f, "ranges");
    RETURN_IF_NOT_OK(open_rows(&r, &all, &work, f));
    if (job->weighted) {
        importance = malloc((columns + 1) * sizeof *importance);
        RETURN_IF_NOT_OK(importance
                             ? importance_read(&run->importance, &job->importance, (int64_t)columns, importance, f)
                             : NO_MEMORY(f, "importance"));
    }
    const qobs_search_args args = {.struct_size = sizeof args,
                                   .config = job->plan->config,
                                   .value = &r.tensor,
                                   .importance = importance,
                                   .importance_size = importance ? columns * sizeof *importance : 0,
                                   .min = job->search_min,
                                   .max = job->search_max,
                                   .size = size,
                                   .best_step = steps,
                                   .best_step_size = steps ? count * sizeof *steps : 0,
                                   .report = steps ? &job->statistics->search : NULL,
                                   .runtime = run->args->runtime};
    if (qobs_search(&args, &error) != QOBS_OK)
        return importance && strncmp(error.message, "importance: ", 12) == 0
                   ? INVALID(f, "%.200s: importance for '%.200s' %s", importance_path(&job->importance),
                             job->weight->name, error.message + 12)
                   : weight_failure(job, &error, f);
    if (steps)
        RETURN_IF_NOT_OK(count_candidates(run, job, &r.tensor, steps, count, f));
    double other;
    extrema_of(job->search_min, r.tensor.dtype, count, &job->min, &other);
    extrema_of(job->search_max, r.tensor.dtype, count, &other, &job->max);
    return QOBS_OK;
}

/* ---- Qparams and codes ------------------------------------------------------------------------------------------- */

/* The qparams of a slice. */
struct slice_qparams {
    int64_t first, count;
    void *scale, *zero_point;
    qobs_dtype scale_dtype, zero_point_dtype;
    bool has_zero_point;
};

/* Computes the qparams of ranges of the complete weight: those of a search, or its one range. */
static int calculate_qparams(struct weight_job *job, struct fail *f)
{
    const qobs_dtype dtype = dtype_in_library(job->weight->dtype);
    const struct quant_args *a = &job->plan->group->weights;
    const bool global = a->strategy == QUANT_TENSOR_GROUP;
    const size_t count = job->search_min ? job_qparams(job) : 1;
    float extrema[2][1]; /* large enough for the dtypes of weights */
    qobs_error error = {0};
    stored_put_number(extrema[0], dtype, job->min);
    stored_put_number(extrema[1], dtype, job->max);
    if (qobs_config_qparam_dtypes(job->plan->config, dtype, &job->scale_dtype, &job->zero_point_dtype, &error) !=
        QOBS_OK)
        return weight_failure(job, &error, f);
    if (global)
        job->scale_dtype = QOBS_F32;
    const size_t scale_size = count * qobs_dtype_size(job->scale_dtype),
                 zero_point_size = count * qobs_dtype_size(job->zero_point_dtype);
    job->scale = malloc(scale_size + 1);
    job->zero_point = malloc(zero_point_size + 1);
    if (!job->scale || !job->zero_point)
        return NO_MEMORY(f, "qparams");
    const qobs_calculate_args args = {.struct_size = sizeof args,
                                      .config = job->plan->config,
                                      .dtype = dtype,
                                      .count = count,
                                      .min = job->search_min ? job->search_min : extrema[0],
                                      .max = job->search_min ? job->search_max : extrema[1],
                                      .size = count * qobs_dtype_size(dtype),
                                      .global_scale = global ? &job->global_scale : NULL,
                                      .scale = job->scale,
                                      .scale_size = scale_size,
                                      .zero_point = a->symmetric ? NULL : job->zero_point,
                                      .zero_point_size = a->symmetric ? 0 : zero_point_size};
    return qobs_calculate_qparams(&args, &error) == QOBS_OK ? QOBS_OK : weight_failure(job, &error, f);
}

/* Pairs of codes of 4 bits are packed while they are made, if no pair has codes of two groups. */
static bool packs_pairs(const struct weight_job *job)
{
    const struct quant_args *a = &job->plan->group->weights;
    const bool whole =
        a->strategy == QUANT_BLOCK ? a->block_structure[1] % 2 == 0 : a->group_size <= 0 || a->group_size % 2 == 0;
    return quant_word_bits(job->plan->storage.format) > 0 && a->num_bits == 4 && job->weight->shape[1] % 8 == 0 &&
           whole;
}

int job_prepare(const struct quantize_run *run, struct weight_job *job, struct fail *f)
{
    const bool codes = run->contents == CONTENTS_MODEL && !run->costs; /* formats without codes have scales, too */
    qobs_error error = {0};
    if (!job->scale && (job->search_min || job->plan->group->weights.strategy == QUANT_TENSOR))
        RETURN_IF_NOT_OK(calculate_qparams(job, f));
    const qobs_quantizer_args args = {.struct_size = sizeof args,
                                      .config = job->plan->config,
                                      .dtype = dtype_in_library(job->weight->dtype),
                                      .columns = job->weight->shape[1],
                                      .dynamic = !job->scale,
                                      .packed = codes && packs_pairs(job),
                                      .dequantized = !codes,
                                      .scale_dtype = job->scale ? job->scale_dtype : 0,
                                      .zero_point_dtype = job->scale ? job->zero_point_dtype : 0};
    return qobs_quantizer_create(&job->quantizer, &args, &error) == QOBS_OK ? QOBS_OK : weight_failure(job, &error, f);
}

/* The qparams of the complete weight from those of the slice on, or memory for them. */
static int open_qparams(struct slice_qparams *q, const struct row_slice *s, const qobs_quantized_layout *layout,
                        struct workspace *work, struct fail *f)
{
    const struct weight_job *job = s->job;
    *q = (struct slice_qparams){.first = s->first / job->unit_rows * job->unit_qparams,
                                .count = (int64_t)layout->count,
                                .scale_dtype = layout->scale_dtype,
                                .zero_point_dtype = layout->zero_point_dtype,
                                .has_zero_point = !job->plan->group->weights.symmetric};
    if (job->scale) {
        q->scale = (unsigned char *)job->scale + (size_t)q->first * qobs_dtype_size(q->scale_dtype);
        q->zero_point = (unsigned char *)job->zero_point + (size_t)q->first * qobs_dtype_size(q->zero_point_dtype);
        return QOBS_OK;
    }
    q->scale = workspace_reserve(work, WORK_SCALE, layout->scale_size);
    q->zero_point = workspace_reserve(work, WORK_ZERO_POINT, layout->zero_point_size);
    return q->scale && q->zero_point ? QOBS_OK : NO_MEMORY(f, "qparams");
}

/* Finds the qparams of the slice, if they are not given, and quantizes its rows to codes; NULL: qparams alone. */
static int quantize_rows(struct quantize_run *run, const struct rows *r, struct row_slice *s,
                         const struct slice_qparams *q, const qobs_quantized_layout *layout, void *codes,
                         struct fail *f)
{
    const struct weight_job *job = s->job;
    const bool global = job->plan->group->weights.strategy == QUANT_TENSOR_GROUP;
    const bool counted = job->scale || global; /* with the range of the complete weight */
    qobs_counts counts = {.struct_size = sizeof counts};
    qobs_error error = {0};
    const qobs_quantizer_run_args args = {.struct_size = sizeof args,
                                          .rows = s->count,
                                          .value = r->tensor.data,
                                          .value_stride = r->strides[0],
                                          .codes = codes,
                                          .codes_size = codes ? layout->codes_size : 0,
                                          .scale = q->scale,
                                          .scale_size = layout->scale_size,
                                          .zero_point = q->has_zero_point ? q->zero_point : NULL,
                                          .zero_point_size = q->has_zero_point ? layout->zero_point_size : 0,
                                          .global_scale = global ? &job->global_scale : NULL,
                                          .squared_error = codes && !run->costs ? &s->error : NULL,
                                          .energy = codes && !run->costs ? &s->energy : NULL,
                                          .counts = counted ? NULL : &counts};
    if (qobs_quantizer_run(job->quantizer, &args, &error) != QOBS_OK)
        return rows_failure(job, error, f);
    if (!counted)
        add_counts(run, job, &counts);
    return QOBS_OK;
}

/* Packs numbers of the slice along a dimension into `size` bytes of words, in the workspace. */
static int pack(const struct row_slice *s, struct workspace *work, int dim, int64_t columns, void *codes, size_t size,
                void **packed, struct fail *f)
{
    qobs_error error = {0};
    void *words = workspace_reserve(work, WORK_PACKED, size);
    if (!words)
        return NO_MEMORY(f, "codes");
    const int bits = s->job->plan->group->weights.num_bits;
    const qobs_pack_args args =
        quant_pack_args(s->job->plan->storage.format, bits, dim, s->count, columns, codes, words, size);
    if (qobs_pack(&args, &error) != QOBS_OK)
        return weight_failure(s->job, &error, f);
    *packed = words;
    return QOBS_OK;
}

/* Writes the codes of the slice, packed as the format has them. */
static int write_codes(struct quantize_run *run, const struct row_slice *s, void *codes, struct workspace *work,
                       struct fail *f)
{
    const struct weight_job *job = s->job;
    const int word_bits = quant_word_bits(job->plan->storage.format);
    const struct output_tensor *t = &run->layout.tensors[run->layout.parts[job->index][PART_CODES]];
    const size_t row = (size_t)(t->bytes / (uint64_t)job->weight->shape[0]), size = row * (size_t)s->count;
    if (word_bits > 0 && (job->hessian || !packs_pairs(job)))
        RETURN_IF_NOT_OK(pack(s, work, 1, job->weight->shape[1], codes, size, &codes, f));
    return run_put(run, job, PART_CODES, row * (uint64_t)s->first, codes, size, f);
}

/* ---- Optimal scales ---------------------------------------------------------------------------------------------- */

/* Adds the costs of codes by descent, if tokens are left that measure them. */
static int add_descended(struct quantize_run *run, const struct row_slice *s, const struct rows *r,
                         const qobs_round_args *rounded, struct workspace *work, struct fail *f)
{
    const size_t size = rounded->codes_size * qobs_dtype_size(r->tensor.dtype);
    struct row_slice costs = *s;
    qobs_error error = {0};
    if (run->costs[s->job->index].tokens == 0)
        return QOBS_OK;
    void *numbers = workspace_reserve(work, WORK_NUMBERS, size);
    if (!numbers)
        return NO_MEMORY(f, "numbers");
    const qobs_tensor codes = {
        .struct_size = sizeof codes, .data = rounded->codes, .dtype = QOBS_I8, .ndim = 2, .shape = r->tensor.shape};
    const qobs_dequantize_args args = {.struct_size = sizeof args,
                                       .config = rounded->config,
                                       .codes = &codes,
                                       .scale = rounded->scale,
                                       .zero_point = rounded->zero_point,
                                       .global_scale = rounded->global_scale,
                                       .out = numbers,
                                       .out_size = size,
                                       .dtype = r->tensor.dtype,
                                       .runtime = rounded->runtime};
    if (qobs_dequantize(&args, &error) != QOBS_OK)
        return weight_failure(s->job, &error, f);
    RETURN_IF_NOT_OK(costs_add(run, &costs, r, numbers, work, f));
    s->job->error += costs.error;
    for (int half = 0; half < HALVES; half++)
        run->costs[s->job->index].loss[half] += costs.loss[half];
    return QOBS_OK;
}

/* Rounds the codes of a slice by descent, with all threads, and writes them. */
static int descend_slice(struct quantize_run *run, const struct row_slice *s, const struct rows *all,
                         struct workspace *work, struct fail *f)
{
    struct weight_job *job = s->job;
    const int64_t shape[2] = {s->count, all->shape[1]};
    struct rows r = *all;
    const int64_t count = s->count * job->unit_qparams;
    const size_t first = (size_t)(s->first * job->unit_qparams);
    qobs_error error = {0};
    qobs_round_report report = {.struct_size = sizeof report};
    r.tensor.data = (const unsigned char *)all->tensor.data + s->first * all->strides[0];
    r.tensor.shape = shape;
    r.tensor.strides = all->strides;
    const size_t size = (size_t)(s->count * all->shape[1]);
    void *codes = workspace_reserve(work, WORK_CODES, size);
    if (!codes)
        return NO_MEMORY(f, "codes");
    const char *scales = (const char *)job->scale + first * qobs_dtype_size(job->scale_dtype);
    const char *zero_points = (const char *)job->zero_point + first * qobs_dtype_size(job->zero_point_dtype);
    const qobs_tensor scale = tensor_of_array(scales, job->scale_dtype, &count);
    const qobs_tensor zero_point = tensor_of_array(zero_points, job->zero_point_dtype, &count);
    const qobs_tensor hessian = {
        .struct_size = sizeof hessian, .data = job->hessian, .dtype = QOBS_F64, .ndim = 3, .shape = job->hessian_shape};
    const bool global = job->plan->group->weights.strategy == QUANT_TENSOR_GROUP;
    const qobs_round_args args = {.struct_size = sizeof args,
                                  .config = job->plan->config,
                                  .value = &r.tensor,
                                  .scale = &scale,
                                  .zero_point = job->plan->group->weights.symmetric ? NULL : &zero_point,
                                  .global_scale = global ? &job->global_scale : NULL,
                                  .hessian = &hessian,
                                  .hessian_count = job->hessian_count,
                                  .codes = codes,
                                  .codes_size = size,
                                  .report = &report,
                                  .runtime = run->args->runtime};
    if (qobs_round_codes(&args, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    job->rounding_error_before += report.error_before;
    job->rounding_error += report.error;
    job->rounding_changed += report.changed;
    if (run->costs) {
        r.shape[0] = s->count;
        return add_descended(run, s, &r, &args, work, f);
    }
    job->error += report.squared_error;
    job->energy += report.energy;
    return write_codes(run, s, codes, work, f);
}

/* Rows that are rounded together: they share copies of the Hessian. */
enum { DESCENT_ROWS = 1024 };

static int descend(struct quantize_run *run, struct weight_job *job, const struct rows *all, double search,
                   struct workspace *work, struct fail *f)
{
    const int64_t rows = job->weight->shape[0];
    for (int64_t first = 0; first < rows; first += DESCENT_ROWS) {
        const struct row_slice s = {
            .job = job, .first = first, .count = rows - first < DESCENT_ROWS ? rows - first : DESCENT_ROWS};
        RETURN_IF_NOT_OK(descend_slice(run, &s, all, work, f));
        RETURN_IF_NOT_OK(
            run_search_progress(run, job, slice_input_bytes(&s), search * (double)s.count / (double)rows, f));
    }
    job->descended = true;
    return QOBS_OK;
}

int job_optimal(struct quantize_run *run, struct weight_job *job, struct fail *f)
{
    RELEASED_BY(workspace_clear) struct workspace work = {0};
    const struct row_slice all = {.job = job, .count = job->weight->shape[0]};
    const struct search_work search = job_search_work(run, job);
    struct rows r;
    int status = run_search_progress(run, job, 0, 0, f); /* names the layer */
    if (status == QOBS_OK)
        status = open_rows(&r, &all, &work, f);
    if (status == QOBS_OK)
        status = job_find_scales(run, job, &r.tensor, f);
    if (status == QOBS_OK)
        status = run_search_progress(run, job, 0, search.scales, f);
    if (status == QOBS_OK && job->hessian)
        status = descend(run, job, &r, search.codes, &work, f);
    free(job->hessian);
    job->hessian = NULL;
    return status;
}

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

static void record_scales(struct quantize_run *run, const struct weight_job *job, const struct slice_qparams *q)
{
    double min, max;
    if (!job->statistics)
        return;
    extrema_of(q->scale, q->scale_dtype, (size_t)q->count, &min, &max);
    pthread_mutex_lock(&run->lock);
    job->statistics->min_scale = fmin(job->statistics->min_scale, min);
    job->statistics->max_scale = fmax(job->statistics->max_scale, max);
    pthread_mutex_unlock(&run->lock);
}

/* Writes scales and zero points in the dtypes of the checkpoint. A scale of the complete weight is written once. */
static int write_qparams(struct quantize_run *run, const struct row_slice *s, struct slice_qparams *q,
                         struct workspace *work, struct fail *f)
{
    const struct weight_job *job = s->job;
    const struct group_storage *storage = &job->plan->storage;
    if (s->first > 0 && job->unit_rows == job->weight->shape[0])
        return QOBS_OK;
    record_scales(run, job, q);
    void *stored = workspace_reserve(work, WORK_CODES, 4 * (size_t)q->count);
    if (!stored)
        return NO_MEMORY(f, "qparams");
    if (storage->packed_zero_points) {
        const int bits = job->plan->group->weights.num_bits, word_bits = quant_word_bits(storage->format);
        const int64_t columns = q->count / s->count;
        const size_t size = (size_t)((s->count * bits + word_bits - 1) / word_bits * columns * (word_bits / 8));
        void *packed;
        RETURN_IF_NOT_OK(pack(s, work, 0, columns, q->zero_point, size, &packed, f));
        const uint64_t offset = (uint64_t)(s->first * bits / word_bits * columns * (word_bits / 8));
        RETURN_IF_NOT_OK(run_put(run, job, PART_ZERO_POINT, offset, packed, size, f));
    } else if (q->has_zero_point) {
        const size_t size =
            stored_zero_points(q->zero_point, q->zero_point_dtype, (size_t)q->count, storage->zero_point_dtype, stored);
        RETURN_IF_NOT_OK(
            run_put(run, job, PART_ZERO_POINT, (uint64_t)q->first * (size / (size_t)q->count), stored, size, f));
    }
    const size_t size = stored_scales(q->scale, q->scale_dtype, (size_t)q->count, storage->format->scale_dtype, stored);
    return run_put(run, job, PART_SCALE, (uint64_t)q->first * (size / (size_t)q->count), stored, size, f);
}

int slice_quantize(struct quantize_run *run, struct row_slice *s, struct workspace *work, struct fail *f)
{
    qobs_quantized_layout layout = {.struct_size = sizeof layout};
    struct slice_qparams q;
    qobs_error error = {0};
    struct rows r;
    RETURN_IF_NOT_OK(open_rows(&r, s, work, f));
    if (qobs_quantizer_layout(s->job->quantizer, s->count, &layout, &error) != QOBS_OK)
        return weight_failure(s->job, &error, f);
    RETURN_IF_NOT_OK(open_qparams(&q, s, &layout, work, f));
    const bool model = run->contents == CONTENTS_MODEL && !s->job->descended;
    void *codes = model ? workspace_reserve(work, WORK_CODES, layout.codes_size) : NULL;
    if (model && !codes)
        return NO_MEMORY(f, "codes");
    if (model || !s->job->scale)
        RETURN_IF_NOT_OK(quantize_rows(run, &r, s, &q, &layout, codes, f));
    if (run->costs)
        return costs_add(run, s, &r, codes, work, f);
    if (model)
        RETURN_IF_NOT_OK(write_codes(run, s, codes, work, f));
    return write_qparams(run, s, &q, work, f);
}

int slice_copy(struct quantize_run *run, struct row_slice *s, struct workspace *work, struct fail *f)
{
    const struct weight *w = s->job->weight;
    if (weight_is_contiguous(w))
        return run_put(run, s->job, PART_SAME, (uint64_t)s->first, w->data + s->first, (size_t)s->count, f);
    const size_t row = (size_t)weight_columns(w) * dtype_size(w->dtype), size = row * (size_t)s->count;
    void *numbers = workspace_reserve(work, WORK_ROWS, size);
    if (!numbers)
        return NO_MEMORY(f, "rows");
    weight_read_rows(w, s->first, s->count, numbers);
    return run_put(run, s->job, PART_SAME, (uint64_t)s->first * row, numbers, size, f);
}
