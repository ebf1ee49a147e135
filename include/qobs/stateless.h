/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/** @file
 * Functions on one tensor or histogram that need no observer. */
#ifndef QOBS_QOBS_STATELESS_H
#define QOBS_QOBS_STATELESS_H

#include "format.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup direct Without an observer
 * Functions on one tensor that need no observer.
 * @{ */

/** Computes the minimum and maximum of `value` for every qparam. min and max receive one element of value's dtype for
 * each qparam of the plan.
 * The setting nonfinite decides about NaN and infinity. After NONFINITE and OUT_OF_MEMORY, min and max are
 * undefined. counts may be NULL; it is overwritten. Reproduces get_current_min_max (llm-compressor) and
 * torch.aminmax. */
QOBS_API int qobs_minmax(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx, void *min,
                         void *max, qobs_counts *counts, const qobs_runtime *runtime, qobs_error *error);

/** Computes the minimum and maximum of the complete tensor, one element each. Otherwise like qobs_minmax. Reproduces
 * get_current_global_min_max (llm-compressor). */
QOBS_API int qobs_global_minmax(const qobs_config *config, const qobs_tensor *value, void *min, void *max,
                                qobs_counts *counts, const qobs_runtime *runtime, qobs_error *error);

/** Counts the tokens of a tensor of any observable dtype, as in qobs_counts. tokens and nonzero_tokens may be NULL. */
QOBS_API int qobs_count_tokens(const qobs_tensor *value, uint64_t *tokens, uint64_t *nonzero_tokens, qobs_error *error);

/** Parameters of a histogram. */
typedef struct qobs_histogram_options {
    size_t struct_size; /**< sizeof(qobs_histogram_options) */
    int64_t count;      /**< number of bins, 1 to 2^24; all have the same width */
    float min;          /**< elements from min to max are counted; min == max: the extrema of each qparam */
    float max;          /**< see min */
    bool magnitude;     /**< count |x| instead of x */
    bool skip_zeros;    /**< zeros count neither in bins nor for the extrema */
} qobs_histogram_options;

/** Computes the histogram of `value` for every qparam of config's granularity, or of all elements if config is NULL.
 * counts receives bins->count counts for each qparam; they are exact. first_edge and last_edge receive one number
 * for each qparam and may be NULL. counts_seen may be NULL; it is overwritten with the counts of the complete
 * tensor. The call uses 16 bytes of memory for each bin and thread.
 * Reproduces torch.histc (torch 2 and later) for F32, BF16 and F16; F64 is rounded to F32 first. A range of one
 * point c becomes [c - 1, c + 1]. NaN and infinities are not counted. If min == max and a qparam has NaN or
 * infinity, the call fails with NONFINITE.
 * Differences: torch divides by infinity if (max - min) * count overflows F32. It divides by zero if c - 1 and c + 1
 * round to c. Here both cases are computed correctly. torch counts in the dtype of the tensor, by adding 1: on one
 * thread, a count of BF16 stops at 256, one of F16 at 2048, one of F32 at 2^24. Here none stops; see
 * qobs_histogram_to_float. */
QOBS_API int qobs_histogram(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                            const qobs_histogram_options *bins, uint64_t *counts, float *first_edge, float *last_edge,
                            qobs_counts *counts_seen, const qobs_runtime *runtime, qobs_error *error);

/** Converts n counts to those of torch.histc on one thread. It counts in F32, so no count exceeds 2^24. */
QOBS_API void qobs_histogram_to_float(size_t n, const uint64_t *counts, float *out);

/** Searches the range with the smallest quantization error for every qparam of `value`, as an observer with an llmc
 * preset *mse does.
 *  - min, max: receive one element of value's dtype for each qparam.
 *  - importance: a weight for each column of a weight tensor (strategies channel, group and tensor_group), finite
 *    and not negative. NULL: equal weights. Every *mse preset accepts it.
 *  - global_scale: the global scale of the later scales. Only version 2025-10 uses it in the search. NULL: none.
 *  - best_step, errors, report: may be NULL; best_step and errors receive one element for each qparam.
 * After NONFINITE and OUT_OF_MEMORY, min and max are undefined and the other outputs unchanged. Reproduces
 * _grid_search_mse and _grid_search of llm-compressor. */
QOBS_API int qobs_search(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                         const float *importance, const float *global_scale, void *min, void *max, int32_t *best_step,
                         double *errors, qobs_search_report *report, const qobs_runtime *runtime, qobs_error *error);

/** Searches the range of the complete tensor, one element each. Every candidate has its own global scale (version
 * 2025-10, strategy tensor_group). Reproduces get_current_global_min_max with optimize_global_scale of the mse
 * observers of llm-compressor. */
QOBS_API int qobs_global_search(const qobs_config *config, const qobs_tensor *value, void *min, void *max,
                                const qobs_runtime *runtime, qobs_error *error);

/** Computes scale and zero point for `count` ranges of dtype `dtype` (torch presets: F32).
 * scale and zero_point receive `count` elements of the dtypes of qobs_config_qparam_dtypes and may be NULL.
 * global_scale (llmc presets) multiplies the scales and makes them F32; NULL: none. Fails with NO_RESULT if upstream
 * raises an exception.
 * Reproduces calculate_qparams of compressed-tensors, of torch.ao's UniformQuantizationObserverBase and of Quark's
 * observers. For Quark's observers per tensor, each range is that of one tensor. For its powers of two, each range
 * is that of one batch. */
QOBS_API int qobs_calculate_qparams(const qobs_config *config, qobs_dtype dtype, size_t count, const void *min,
                                    const void *max, const float *global_scale, void *scale, void *zero_point,
                                    qobs_error *error);

/** Computes the global scale for a range (strategy tensor_group): a range that fills e2m1 then gives scales that fill
 * e4m3. min, max and the computation have dtype `dtype`. min and max must be finite. Fails with NO_RESULT if the global
 * scale is 0 in F32 (F64 magnitudes above 10^48). Reproduces generate_gparam of compressed-tensors, which has 1 for
 * NaN and 0 for infinity. */
QOBS_API int qobs_global_scale(const qobs_config *config, qobs_dtype dtype, double min, double max, float *global_scale,
                               qobs_error *error);

/** Quantizes and dequantizes every element of `value` with its qparam.
 *  - format: NULL for the format of the configuration; torch presets: NULL.
 *  - scale: one element for each qparam in C order, F32 or value's dtype (torch presets: F32).
 *  - zero_point: as many elements of any dtype; NULL: none.
 *  - global_scale: divides every scale; NULL: none.
 *  - out: receives value's dtype and shape; may be value's data with the same strides, and must not overlap it
 *    otherwise.
 *  - out_strides: bytes; NULL: C order. A stride may be 0 only if there is one element.
 * llmc presets reproduce fake_quantize of compressed-tensors. The computation is in value's dtype, but in float for
 * BF16 and F16 if scale is F32 or there is a global scale. The result is rounded to value's dtype; upstream returns
 * F32 then, except for strategy group.
 * torch presets reproduce torch.fake_quantize_per_tensor_affine, which maps NaN to the smallest integer. In other
 * presets NaN stays NaN. */
QOBS_API int qobs_fake_quantize(const qobs_config *config, const qobs_format *format, const qobs_tensor *value,
                                const qobs_tensor *g_idx, const qobs_tensor *scale, const qobs_tensor *zero_point,
                                const float *global_scale, void *out, const int64_t *out_strides,
                                const qobs_runtime *runtime, qobs_error *error);

/** @} */

/** @defgroup range Range finders
 * Functions that find the range to quantize in a histogram, which may come from any source.
 *  - histogram: 1-dimensional counts, F32, F64, I32 or I64. bin_edges: F32, one more element.
 *  - config: a quark.* preset (settings symmetric and dtype) or a modelopt.* preset (num_bits and unsigned). The range
 * of modelopt.* is -amax to amax, or 0 to amax if unsigned.
 *  - runtime may be NULL. Its executor is not used.
 * @{ */

/** Finds the range that holds `percentile` percent, 0 to 100.
 * quark.* reproduces get_min_max_by_percentile. If symmetric, the range is 0 to the left edge of the first bin whose
 * cumulative share reaches the percentile. If asymmetric, it is the smallest range of bins with at most half of the
 * remaining share on each side. Upstream documents that rule but computes another range;
 * quark.PerTensorPercentileObserver reproduces what it computes.
 * modelopt.* reproduces compute_amax(percentile) of Model-Optimizer. */
QOBS_API int qobs_range_by_percentile(const qobs_config *config, const qobs_tensor *histogram,
                                      const qobs_tensor *bin_edges, double percentile, float *min, float *max,
                                      const qobs_runtime *runtime, qobs_error *error);

/** Finds the range with the smallest mean squared error of the quantized bin centres. Candidates end at the centres
 * of bins start_bin, start_bin + stride, ...
 * quark.* reproduces get_min_max_by_mse; a start_bin beyond the last bin means the last bin. modelopt.* reproduces the
 * documented compute_amax(mse) of Model-Optimizer; upstream passes its arguments in the wrong order and returns
 * start_bin. */
QOBS_API int qobs_range_by_mse(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges,
                               int64_t stride, int64_t start_bin, float *min, float *max, const qobs_runtime *runtime,
                               qobs_error *error);

/** Finds the range with the smallest squared error if elements are spread evenly over their bins. It clips from
 * either side, 1e-5 of the elements at a time, until the error increases. Only for torch.* presets (setting dtype).
 * Reproduces _non_linear_param_search of HistogramObserver, which computes in float32 and double. Only the first and
 * the last edge are read, the others may be anything; counts are rounded to float32. Sums have the order of torch.sum
 * for vectors of 8. If max - min overflows float32, the result is the full range; upstream has no result. */
QOBS_API int qobs_range_by_l2_norm(const qobs_config *config, const qobs_tensor *histogram,
                                   const qobs_tensor *bin_edges, float *min, float *max, const qobs_runtime *runtime,
                                   qobs_error *error);

/** Finds the range with the smallest Kullback-Leibler divergence. Candidates hold the first start_bin, start_bin +
 * stride, ... bins. Only for modelopt.* presets with integers of 2 to 16 bits.
 * Reproduces compute_amax(entropy) of Model-Optimizer. Upstream changes bin 0 of a numpy histogram; here the
 * histogram is not modified. */
QOBS_API int qobs_range_by_entropy(const qobs_config *config, const qobs_tensor *histogram,
                                   const qobs_tensor *bin_edges, int64_t stride, int64_t start_bin, float *min,
                                   float *max, const qobs_runtime *runtime, qobs_error *error);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
