/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Codes of slices: the quantizer, packing, rounding by descent. */
#include <stdlib.h>

#include "engine/engine_steps.h"
#include "files/status.h"
#include "files/text.h"
#include "model/stored_qparams.h"
#include "qobs/stateless.h"

/* ---- Qparams and codes ------------------------------------------------------------------------------------------- */

/* Finds the dtypes of qparams that the quantizer is given. */
static int find_dtypes(struct weight_job *job, struct fail *f)
{
    const qobs_dtype dtype = dtype_in_library(job->weight->dtype);
    qobs_error error = {0};
    if (qobs_config_qparam_dtypes(job->group->config, dtype, &job->qparams.scale_dtype, &job->qparams.zero_point_dtype,
                                  &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    if (job_args(job)->strategy == QUANT_TENSOR_GROUP ||
        (job_keeps_codes(job) && job->weight->source_codes.scales->dtype == FILE_F32))
        job->qparams.scale_dtype = QOBS_F32;
    return QOBS_OK;
}

/* Computes the qparams of ranges of the complete weight: those of a search, or its one range. */
static int calculate_qparams(struct weight_job *job, struct fail *f)
{
    const qobs_dtype dtype = dtype_in_library(job->weight->dtype);
    const struct quant_args *a = job_args(job);
    const bool global = a->strategy == QUANT_TENSOR_GROUP;
    const size_t count = job->range.lows ? job_qparams(job) : 1;
    float extrema[2][1]; /* large enough for the dtypes of weights */
    qobs_error error = {0};
    stored_put_number(extrema[0], dtype, job->range.min);
    stored_put_number(extrema[1], dtype, job->range.max);
    RETURN_IF_NOT_OK(find_dtypes(job, f));
    const size_t scale_size = count * qobs_dtype_size(job->qparams.scale_dtype),
                 zero_point_size = count * qobs_dtype_size(job->qparams.zero_point_dtype);
    job->qparams.scale = malloc(scale_size + 1);
    job->qparams.zero_point = malloc(zero_point_size + 1);
    if (!job->qparams.scale || !job->qparams.zero_point)
        return NO_MEMORY(f, "qparams");
    const qobs_qparams_from_ranges_args args = {.struct_size = sizeof args,
                                                .config = job->group->config,
                                                .dtype = dtype,
                                                .count = count,
                                                .min = job->range.lows ? job->range.lows : extrema[0],
                                                .max = job->range.lows ? job->range.highs : extrema[1],
                                                .size = count * qobs_dtype_size(dtype),
                                                .global_scale = global ? &job->range.global_scale : NULL,
                                                .scale = job->qparams.scale,
                                                .scale_size = scale_size,
                                                .zero_point = a->symmetric ? NULL : job->qparams.zero_point,
                                                .zero_point_size = a->symmetric ? 0 : zero_point_size};
    return qobs_qparams_from_ranges(&args, &error) == QOBS_OK ? QOBS_OK : weight_failure(job, &error, f);
}

/* Pairs of codes of 4 bits are packed while they are made, if no pair has codes of two groups. */
static bool packs_pairs(const struct weight_job *job)
{
    const struct quant_args *a = job_args(job);
    const bool whole =
        a->strategy == QUANT_BLOCK ? a->block_structure[1] % 2 == 0 : a->group_size <= 0 || a->group_size % 2 == 0;
    return quant_word_bits(job->group->format) > 0 && !job_keeps_codes(job) && a->num_bits == 4 &&
           job->weight->shape[1] % 8 == 0 && whole;
}

int job_prepare(struct weight_job *job, struct fail *f)
{
    const bool codes = job->wants & WANTS_CODES; /* formats without codes have scales, too */
    qobs_error error = {0};
    if (!job->qparams.scale && !job->cast && (job->range.lows || job_args(job)->strategy == QUANT_TENSOR))
        RETURN_IF_NOT_OK(calculate_qparams(job, f));
    if (job->cast)
        RETURN_IF_NOT_OK(find_dtypes(job, f));
    const bool given = job->qparams.scale || job->cast;
    const qobs_quantizer_args args = {.struct_size = sizeof args,
                                      .config = job->group->config,
                                      .dtype = dtype_in_library(job->weight->dtype),
                                      .columns = job->weight->shape[1],
                                      .dynamic = !given,
                                      .packed = codes && packs_pairs(job),
                                      .dequantized = !codes,
                                      .scale_dtype = given ? job->qparams.scale_dtype : 0,
                                      .zero_point_dtype = given ? job->qparams.zero_point_dtype : 0};
    return qobs_quantizer_create(&job->quantizer, &args, &error) == QOBS_OK ? QOBS_OK : weight_failure(job, &error, f);
}

/* The qparams of the complete weight from those of the slice on, or memory for them. */
static int open_qparams(struct slice_qparams *q, struct row_slice *s, const qobs_quantized_layout *layout,
                        struct workspace *work, struct fail *f)
{
    const struct weight_job *job = s->job;
    *q = (struct slice_qparams){.first = s->first / job->unit_rows * job->unit_qparams,
                                .count = (int64_t)layout->count,
                                .scale_dtype = layout->scale_dtype,
                                .zero_point_dtype = layout->zero_point_dtype,
                                .has_zero_point = !job_args(job)->symmetric};
    if (job->qparams.scale) {
        q->scale = (unsigned char *)job->qparams.scale + (size_t)q->first * qobs_dtype_size(q->scale_dtype);
        q->zero_point =
            (unsigned char *)job->qparams.zero_point + (size_t)q->first * qobs_dtype_size(q->zero_point_dtype);
        return QOBS_OK;
    }
    q->scale = workspace_reserve(work, WORK_SCALE, layout->scale_size);
    q->zero_point = workspace_reserve(work, WORK_ZERO_POINT, layout->zero_point_size);
    if (!q->scale || !q->zero_point)
        return NO_MEMORY(f, "qparams");
    return job->cast ? cast_scales(s, q, work, f) : QOBS_OK;
}

/* Finds the qparams of the slice, if they are not given, and quantizes its rows to codes; NULL: qparams alone. */
static int quantize_rows(struct engine *e, const struct rows *r, struct row_slice *s, const struct slice_qparams *q,
                         const qobs_quantized_layout *layout, void *codes, struct fail *f)
{
    const struct weight_job *job = s->job;
    const bool global = job_args(job)->strategy == QUANT_TENSOR_GROUP;
    const bool counted = job->qparams.scale || global || job->cast; /* with the range of the complete weight */
    const bool measured = codes && job->wants & WANTS_CODES;
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
                                          .global_scale = global ? &job->range.global_scale : NULL,
                                          .squared_error = measured ? &s->error : NULL,
                                          .energy = measured ? &s->energy : NULL,
                                          .counts = counted ? NULL : &counts};
    if (qobs_quantizer_run(job->quantizer, &args, &error) != QOBS_OK)
        return rows_failure(job, error, f);
    return !counted && job->wants & WANTS_COUNTS ? e->sink->functions->counts(e->sink, job, &counts, f) : QOBS_OK;
}

int slice_pack(const struct row_slice *s, struct workspace *work, int dim, int64_t columns, void *codes, size_t size,
               void **packed, struct fail *f)
{
    qobs_error error = {0};
    void *words = workspace_reserve(work, WORK_PACKED, size);
    if (!words)
        return NO_MEMORY(f, "codes");
    const int bits = job_args(s->job)->num_bits;
    const qobs_pack_args args =
        quant_pack_args(s->job->group->format, bits, dim, s->count, columns, codes, words, size);
    if (qobs_pack(&args, &error) != QOBS_OK)
        return weight_failure(s->job, &error, f);
    *packed = words;
    return QOBS_OK;
}

/* Returns the bytes of a row of codes as the format stores them. */
static size_t row_bytes(const struct weight_job *job)
{
    const size_t word_bits = (size_t)quant_word_bits(job->group->format), columns = (size_t)job->weight->shape[1];
    const size_t bits = columns * (size_t)job_args(job)->num_bits;
    return word_bits > 0 ? (bits + word_bits - 1) / word_bits * (word_bits / 8)
                         : columns * dtype_size(quant_code_dtype(job_args(job)));
}

/* Gives the sink the codes of the slice, packed as the format has them. */
static int put_codes(struct engine *e, const struct row_slice *s, void *codes, struct workspace *work, struct fail *f)
{
    const struct weight_job *job = s->job;
    const size_t row = row_bytes(job), size = row * (size_t)s->count;
    if (quant_word_bits(job->group->format) > 0 && (job->hessian.sum || !packs_pairs(job)))
        RETURN_IF_NOT_OK(slice_pack(s, work, 1, job->weight->shape[1], codes, size, &codes, f));
    return e->sink->functions->codes(e->sink, job, row * (uint64_t)s->first, codes, size, f);
}

/* ---- Rounding by descent ----------------------------------------------------------------------------------------- */

bool job_rounds(const struct weight_job *job)
{
    return job->group && job->group->needs.rounds_codes && job->wants & (WANTS_CODES | WANTS_NUMBERS | WANTS_RESULT);
}

/* Gives the sink the numbers of codes by descent. */
static int put_numbers(struct engine *e, struct row_slice *s, const struct rows *r, const qobs_round_args *rounded,
                       struct workspace *work, struct fail *f)
{
    const size_t size = rounded->codes_size * qobs_dtype_size(r->tensor.dtype);
    qobs_error error = {0};
    void *numbers = workspace_reserve(work, WORK_PACKED, size);
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
    return e->sink->functions->numbers(e->sink, s, r, numbers, work, f);
}

/* Rounds the codes of a slice by descent, with all threads, and gives them to the sink. */
static int descend_slice(struct engine *e, struct row_slice *s, const struct rows *all, struct workspace *work,
                         struct fail *f)
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
    const char *scales = (const char *)job->qparams.scale + first * qobs_dtype_size(job->qparams.scale_dtype);
    const char *zero_points =
        (const char *)job->qparams.zero_point + first * qobs_dtype_size(job->qparams.zero_point_dtype);
    const qobs_tensor scale = tensor_of_array(scales, job->qparams.scale_dtype, &count);
    const qobs_tensor zero_point = tensor_of_array(zero_points, job->qparams.zero_point_dtype, &count);
    const qobs_tensor hessian = {.struct_size = sizeof hessian,
                                 .data = job->hessian.sum,
                                 .dtype = QOBS_F64,
                                 .ndim = 3,
                                 .shape = job->hessian.shape};
    const bool global = job_args(job)->strategy == QUANT_TENSOR_GROUP;
    const qobs_round_args args = {.struct_size = sizeof args,
                                  .config = job->group->config,
                                  .value = &r.tensor,
                                  .scale = &scale,
                                  .zero_point = job_args(job)->symmetric ? NULL : &zero_point,
                                  .global_scale = global ? &job->range.global_scale : NULL,
                                  .hessian = &hessian,
                                  .hessian_count = job->hessian.count,
                                  .codes = codes,
                                  .codes_size = size,
                                  .report = &report,
                                  .runtime = e->in.runtime};
    if (qobs_round_codes(&args, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    job->result.rounding_error_before += report.error_before;
    job->result.rounding_error += report.error;
    job->result.rounding_changed += report.changed;
    s->error = report.squared_error;
    s->energy = report.energy;
    r.shape[0] = s->count;
    if (job->wants & WANTS_CODES)
        RETURN_IF_NOT_OK(put_codes(e, s, codes, work, f));
    return job->wants & WANTS_NUMBERS ? put_numbers(e, s, &r, &args, work, f) : QOBS_OK;
}

/* Rows that are rounded together: they share copies of the Hessian. */
enum { DESCENT_ROWS = 1024 };

static int descend(struct engine *e, struct weight_job *job, const struct rows *all, double search,
                   struct workspace *work, struct fail *f)
{
    const int64_t rows = job->weight->shape[0];
    for (int64_t first = 0; first < rows; first += DESCENT_ROWS) {
        struct row_slice s = {
            .job = job, .first = first, .count = rows - first < DESCENT_ROWS ? rows - first : DESCENT_ROWS};
        RETURN_IF_NOT_OK(descend_slice(e, &s, all, work, f));
        slice_sum(&s);
        RETURN_IF_NOT_OK(engine_progress(e, job, slice_bytes(&s), search * (double)s.count / (double)rows, f));
    }
    job->result.rounded = true;
    return QOBS_OK;
}

int job_optimal(struct engine *e, struct weight_job *job, struct fail *f)
{
    RELEASED_BY(workspace_clear) struct workspace work = {0};
    const struct row_slice all = {.job = job, .count = job->weight->shape[0]};
    const struct search_work search = job_search_work(e, job);
    struct rows r;
    int status = engine_progress(e, job, 0, 0, f); /* names the layer */
    if (status == QOBS_OK)
        status = rows_open(&r, &all, &work, f);
    if (status == QOBS_OK)
        status = job_find_scales(e, job, &r.tensor, f);
    if (status == QOBS_OK)
        status = engine_progress(e, job, 0, search.scales, f);
    if (status == QOBS_OK && job->hessian.sum)
        status = descend(e, job, &r, search.codes, &work, f);
    free(job->hessian.sum);
    job->hessian.sum = NULL;
    return status;
}

/* ---- Slices ------------------------------------------------------------------------------------------------------ */

unsigned job_left(const struct weight_job *job)
{
    return job->result.rounded ? job->wants & ~(unsigned)(WANTS_CODES | WANTS_NUMBERS) : job->wants;
}

int slice_quantize(struct engine *e, struct row_slice *s, struct workspace *work, struct fail *f)
{
    qobs_quantized_layout layout = {.struct_size = sizeof layout};
    struct slice_qparams q;
    qobs_error error = {0};
    struct rows r = {.shape = {0}};
    const struct weight_job *job = s->job;
    const unsigned wants = job_left(job);
    if (job->moved.qparams) {
        cast_moved(s);
        return e->sink->functions->move(e->sink, s, work, f);
    }
    const bool kept = job_keeps_codes(job) && !(wants & WANTS_NUMBERS);
    if (!kept)
        RETURN_IF_NOT_OK(rows_open(&r, s, work, f));
    if (qobs_quantizer_layout(job->quantizer, s->count, &layout, &error) != QOBS_OK)
        return weight_failure(job, &error, f);
    RETURN_IF_NOT_OK(open_qparams(&q, s, &layout, work, f));
    const bool coded = wants & (WANTS_CODES | WANTS_NUMBERS) && !job->moved.words;
    void *codes = coded ? workspace_reserve(work, WORK_CODES, layout.codes_size) : NULL;
    if (coded && !codes)
        return NO_MEMORY(f, "codes");
    if (kept && coded)
        RETURN_IF_NOT_OK(cast_codes(s, codes, work, f));
    else if (coded || !(job->qparams.scale || job->cast))
        RETURN_IF_NOT_OK(quantize_rows(e, &r, s, &q, &layout, codes, f));
    if (job->moved.words)
        RETURN_IF_NOT_OK(e->sink->functions->move(e->sink, s, work, f));
    else if (wants & WANTS_CODES)
        RETURN_IF_NOT_OK(put_codes(e, s, codes, work, f));
    if (wants & WANTS_NUMBERS)
        RETURN_IF_NOT_OK(e->sink->functions->numbers(e->sink, s, &r, codes, work, f));
    /* The scale of a complete weight is given once. */
    const bool again = s->first > 0 && job->unit_rows == job->weight->shape[0];
    return wants & WANTS_SCALES && !again ? e->sink->functions->scales(e->sink, s, &q, work, f) : QOBS_OK;
}
