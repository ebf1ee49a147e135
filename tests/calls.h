/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Calls of stateless functions with positional arguments. Sizes of arrays are those that the function expects, so that
 * a test names only what it is about; test_arguments.c tests sizes. */
#ifndef QOBS_CALLS_H
#define QOBS_CALLS_H

#include "qobs/experimental.h"

/* The number of qparams; 0 if the plan fails, as the function then does for the same reason. */
static inline size_t call_count(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx)
{
    qobs_plan *plan = NULL;
    int64_t shape[QOBS_PLAN_MAX_NDIM];
    if (!config || qobs_plan_create(&plan, config, value, g_idx, NULL, NULL) != QOBS_OK)
        return config ? 0 : 1;
    const int ndim = qobs_plan_shape(plan, shape, sizeof shape);
    size_t count = 1;
    for (int i = 1; i < ndim - 1; i++)
        count *= (size_t)shape[i];
    qobs_plan_destroy(plan);
    return count;
}

/* Compares fields, because the bytes of padding differ. */
static inline bool same_report(const qobs_search_report *a, const qobs_search_report *b)
{
    return a->struct_size == b->struct_size && a->steps == b->steps && a->stop_step == b->stop_step &&
           a->error_before == b->error_before && a->error == b->error && a->weighted == b->weighted &&
           a->fallback == b->fallback;
}

static inline size_t call_element(const qobs_tensor *value) { return value ? qobs_dtype_size(value->dtype) : 0; }

static inline int call_minmax(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx, void *min,
                              void *max, qobs_counts *counts, const qobs_runtime *runtime, qobs_error *error)
{
    const qobs_minmax_args args = {.struct_size = sizeof args,
                                   .config = config,
                                   .value = value,
                                   .g_idx = g_idx,
                                   .min = min,
                                   .max = max,
                                   .size = call_count(config, value, g_idx) * call_element(value),
                                   .counts = counts,
                                   .runtime = runtime};
    return qobs_minmax(&args, error);
}

static inline int call_global_minmax(const qobs_config *config, const qobs_tensor *value, void *min, void *max,
                                     qobs_counts *counts, const qobs_runtime *runtime, qobs_error *error)
{
    const qobs_minmax_args args = {.struct_size = sizeof args,
                                   .config = config,
                                   .value = value,
                                   .min = min,
                                   .max = max,
                                   .size = call_element(value),
                                   .counts = counts,
                                   .runtime = runtime};
    return qobs_global_minmax(&args, error);
}

static inline int call_histogram(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                                 const qobs_histogram_options *options, uint64_t *counts, float *first_edge,
                                 float *last_edge, qobs_counts *totals, const qobs_runtime *runtime, qobs_error *error)
{
    const size_t n = call_count(config, value, g_idx);
    const qobs_histogram_args args = {.struct_size = sizeof args,
                                      .config = config,
                                      .value = value,
                                      .g_idx = g_idx,
                                      .options = options,
                                      .counts = counts,
                                      .counts_size = options ? n * (size_t)options->count * sizeof *counts : 0,
                                      .first_edge = first_edge,
                                      .last_edge = last_edge,
                                      .edges_size = first_edge || last_edge ? n * sizeof *first_edge : 0,
                                      .totals = totals,
                                      .runtime = runtime};
    return qobs_histogram(&args, error);
}

static inline int call_search(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                              const float *importance, const float *global_scale, void *min, void *max,
                              int32_t *best_step, double *errors, qobs_search_report *report,
                              const qobs_runtime *runtime, qobs_error *error)
{
    const size_t n = call_count(config, value, g_idx);
    const size_t columns = importance && value && value->ndim > 0 ? (size_t)value->shape[value->ndim - 1] : 1;
    const qobs_search_args args = {.struct_size = sizeof args,
                                   .config = config,
                                   .value = value,
                                   .g_idx = g_idx,
                                   .importance = importance,
                                   .importance_size = importance ? columns * sizeof *importance : 0,
                                   .global_scale = global_scale,
                                   .min = min,
                                   .max = max,
                                   .size = n * call_element(value),
                                   .best_step = best_step,
                                   .best_step_size = best_step ? n * sizeof *best_step : 0,
                                   .errors = errors,
                                   .errors_size = errors ? n * sizeof *errors : 0,
                                   .report = report,
                                   .runtime = runtime};
    return qobs_search(&args, error);
}

static inline int call_global_search(const qobs_config *config, const qobs_tensor *value, void *min, void *max,
                                     const qobs_runtime *runtime, qobs_error *error)
{
    const qobs_search_args args = {.struct_size = sizeof args,
                                   .config = config,
                                   .value = value,
                                   .min = min,
                                   .max = max,
                                   .size = call_element(value),
                                   .runtime = runtime};
    return qobs_global_search(&args, error);
}

static inline int call_calculate_qparams(const qobs_config *config, qobs_dtype dtype, size_t count, const void *min,
                                         const void *max, const float *global_scale, void *scale, void *zero_point,
                                         qobs_error *error)
{
    qobs_dtype scale_dtype = QOBS_F32, zero_point_dtype = QOBS_F32;
    if (qobs_config_qparam_dtypes(config, dtype, &scale_dtype, &zero_point_dtype, NULL) == QOBS_OK && global_scale)
        scale_dtype = QOBS_F32;
    const qobs_qparams_from_ranges_args args = {.struct_size = sizeof args,
                                                .config = config,
                                                .dtype = dtype,
                                                .count = count,
                                                .min = min,
                                                .max = max,
                                                .size = count * qobs_dtype_size(dtype),
                                                .global_scale = global_scale,
                                                .scale = scale,
                                                .scale_size = scale ? count * qobs_dtype_size(scale_dtype) : 0,
                                                .zero_point = zero_point,
                                                .zero_point_size =
                                                    zero_point ? count * qobs_dtype_size(zero_point_dtype) : 0};
    return qobs_qparams_from_ranges(&args, error);
}

static inline int call_fake_quantize(const qobs_config *config, const qobs_format *format, const qobs_tensor *value,
                                     const qobs_tensor *g_idx, const qobs_tensor *scale, const qobs_tensor *zero_point,
                                     const float *global_scale, void *out, const int64_t *out_strides,
                                     const qobs_runtime *runtime, qobs_error *error)
{
    const qobs_fake_quantize_args args = {.struct_size = sizeof args,
                                          .config = config,
                                          .format = format,
                                          .value = value,
                                          .g_idx = g_idx,
                                          .scale = scale,
                                          .zero_point = zero_point,
                                          .global_scale = global_scale,
                                          .out = out,
                                          .out_strides = out_strides,
                                          .out_size = (size_t)1 << 40,
                                          .runtime = runtime};
    return qobs_fake_quantize(&args, error);
}

/* ---- Number formats ---------------------------------------------------------------------------------------------- */

static inline int call_format_encode_array(const qobs_format *format, size_t n, const float *x, void *out,
                                           bool saturate)
{
    const qobs_format_array_args args = {.struct_size = sizeof args,
                                         .format = format,
                                         .x = x,
                                         .x_size = n * sizeof *x,
                                         .out = out,
                                         .out_size = n * qobs_format_size(format),
                                         .saturate = saturate};
    return qobs_format_encode_array(&args, NULL);
}

/* ---- Range finders ----------------------------------------------------------------------------------------------- */

static inline qobs_range_args call_range_args(const qobs_config *config, const qobs_tensor *histogram,
                                              const qobs_tensor *bin_edges, const qobs_runtime *runtime)
{
    return (qobs_range_args){.struct_size = sizeof(qobs_range_args),
                             .config = config,
                             .histogram = histogram,
                             .bin_edges = bin_edges,
                             .runtime = runtime};
}

static inline int call_range_result(int status, const qobs_range *range, float *min, float *max)
{
    if (status == QOBS_OK) {
        *min = range->min;
        *max = range->max;
    }
    return status;
}

static inline int call_range_by_percentile(const qobs_config *config, const qobs_tensor *histogram,
                                           const qobs_tensor *bin_edges, double percentile, float *min, float *max,
                                           const qobs_runtime *runtime, qobs_error *error)
{
    qobs_range_args args = call_range_args(config, histogram, bin_edges, runtime);
    qobs_range range = {.struct_size = sizeof range};
    args.percentile = percentile;
    return call_range_result(qobs_range_by_percentile(&args, min && max ? &range : NULL, error), &range, min, max);
}

static inline int call_range_by_mse(const qobs_config *config, const qobs_tensor *histogram,
                                    const qobs_tensor *bin_edges, int64_t stride, int64_t start_bin, float *min,
                                    float *max, const qobs_runtime *runtime, qobs_error *error)
{
    qobs_range_args args = call_range_args(config, histogram, bin_edges, runtime);
    qobs_range range = {.struct_size = sizeof range};
    args.stride = stride;
    args.start_bin = start_bin;
    return call_range_result(qobs_range_by_mse(&args, min && max ? &range : NULL, error), &range, min, max);
}

static inline int call_range_by_l2_norm(const qobs_config *config, const qobs_tensor *histogram,
                                        const qobs_tensor *bin_edges, float *min, float *max,
                                        const qobs_runtime *runtime, qobs_error *error)
{
    const qobs_range_args args = call_range_args(config, histogram, bin_edges, runtime);
    qobs_range range = {.struct_size = sizeof range};
    return call_range_result(qobs_range_by_l2_norm(&args, min && max ? &range : NULL, error), &range, min, max);
}

static inline int call_range_by_entropy(const qobs_config *config, const qobs_tensor *histogram,
                                        const qobs_tensor *bin_edges, int64_t stride, int64_t start_bin, float *min,
                                        float *max, const qobs_runtime *runtime, qobs_error *error)
{
    qobs_range_args args = call_range_args(config, histogram, bin_edges, runtime);
    qobs_range range = {.struct_size = sizeof range};
    args.stride = stride;
    args.start_bin = start_bin;
    return call_range_result(qobs_range_by_entropy(&args, min && max ? &range : NULL, error), &range, min, max);
}

/* ---- Observers --------------------------------------------------------------------------------------------------- */

static inline qobs_qparam_buffers call_buffers(void *scale, size_t scale_size, void *zero_point, size_t zero_point_size)
{
    return (qobs_qparam_buffers){.struct_size = sizeof(qobs_qparam_buffers),
                                 .scale = scale,
                                 .scale_size = scale ? scale_size : 0,
                                 .zero_point = zero_point,
                                 .zero_point_size = zero_point ? zero_point_size : 0};
}

static inline int call_qparams(const qobs_observer *o, void *scale, size_t scale_size, void *zero_point,
                               size_t zero_point_size, qobs_error *error)
{
    const qobs_qparam_buffers out = call_buffers(scale, scale_size, zero_point, zero_point_size);
    return qobs_qparams_from_observer(o, &out, error);
}

static inline int call_update_qparams(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx, void *scale,
                                      size_t scale_size, void *zero_point, size_t zero_point_size, qobs_error *error)
{
    const qobs_qparam_buffers out = call_buffers(scale, scale_size, zero_point, zero_point_size);
    return value ? qobs_observer_update_qparams(o, value, g_idx, &out, error)
                 : qobs_qparams_from_observer(o, &out, error);
}

static inline int call_update_qparams_along_dim(qobs_observer *o, const qobs_tensor *value, const int *dim,
                                                size_t count, void *scale, size_t scale_size, void *zero_point,
                                                size_t zero_point_size, qobs_error *error)
{
    const qobs_qparam_buffers out = call_buffers(scale, scale_size, zero_point, zero_point_size);
    return qobs_observer_update_qparams_along_dim(o, value, dim, count, &out, error);
}

static inline int call_update_min_max(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx, void *min,
                                      void *max, size_t size, qobs_error *error)
{
    const qobs_range_buffers out = {.struct_size = sizeof out, .min = min, .max = max, .size = size};
    return qobs_observer_update_min_max(o, value, g_idx, &out, error);
}

static inline int call_update_global_min_max(qobs_observer *o, const qobs_tensor *value, void *min, void *max,
                                             size_t size, qobs_error *error)
{
    const qobs_range_buffers out = {.struct_size = sizeof out, .min = min, .max = max, .size = size};
    return qobs_observer_update_global_min_max(o, value, &out, error);
}

#endif
