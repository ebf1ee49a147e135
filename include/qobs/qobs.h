/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/** @mainpage qobs
 * Observers for neural-network quantization. They watch weights and activations and decide scale and zero point, with the
 * results of the Python observers users have today, bit for bit.
 *
 * Conventions of this header
 *  - Functions that can fail return QOBS_OK or a negative status; the last parameter, if not NULL, receives a message that
 *    names the argument, its value and what is allowed. After a failure nothing has changed.
 *  - Whoever creates an object destroys it; qobs keeps no pointer to a caller's tensor after a call returns.
 *  - One object is for one thread at a time, different objects are independent. Functions that take only const objects may
 *    run at the same time on the same object.
 *  - qobs starts no thread, reads no environment variable, writes no file and never aborts.
 *  - Structures begin with struct_size, which the caller sets to the sizeof they have in its header. They only ever grow: what
 *    an older header's structure lacks counts as 0 and is not written; what a newer one has added must be 0, or the call fails
 *    with UNSUPPORTED, and is not written.
 *  - Shapes count elements, strides count bytes.
 *  - Observed tensors may lie at any address; arrays that hold ranges or receive results are aligned for their dtype.
 *  - Results do not depend on the instruction set, on the number of threads, or on the caller's rounding and flush modes. */
#ifndef QOBS_QOBS_H
#define QOBS_QOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** @defgroup version Version
 * @{ */

/** The version of this header; qobs_version tells that of the library. */
#define QOBS_VERSION "0.1.0"
#define QOBS_VERSION_MAJOR 0 /**< the same in numbers */
#define QOBS_VERSION_MINOR 1 /**< the same in numbers */
#define QOBS_VERSION_PATCH 0 /**< the same in numbers */

/** @cond internal */
#if defined(__GNUC__) || defined(__clang__)
#define QOBS_API __attribute__((visibility("default")))
#else
#define QOBS_API
#endif
/** @endcond */

#ifdef __cplusplus
extern "C" {
#endif

/** The version of the library that is running, e.g. "0.1.0". */
QOBS_API const char *qobs_version(void);

/** @} */

/** @defgroup errors Errors
 * @{ */

/** What functions return that can fail. */
typedef enum qobs_status {
    QOBS_OK = 0,
    QOBS_ERROR_INVALID_ARGUMENT = -1, /**< an argument or setting is wrong, or two of them do not go together */
    QOBS_ERROR_UNSUPPORTED = -2,      /**< legal, but not on this machine or in this build */
    QOBS_ERROR_OUT_OF_MEMORY = -3,    /**< the allocator returned NULL */
    QOBS_ERROR_NONFINITE = -4,        /**< NaN or infinity in an observed tensor, and nonfinite=refuse */
    QOBS_ERROR_NO_DATA = -5,          /**< nothing has been observed that the result could be made of */
    QOBS_ERROR_NO_RESULT = -6         /**< the observed ranges leave no valid result (upstream raises) */
} qobs_status;

/** What has gone wrong, for people. */
typedef struct qobs_error {
    int status;        /**< a qobs_status; the same as the return value */
    char message[252]; /**< English, one line, always terminated; empty after success */
} qobs_error;

/** A short fixed text for a status, e.g. "invalid argument"; never NULL. */
QOBS_API const char *qobs_status_string(int status);

/** @} */

/** @defgroup tensors Tensors
 * @{ */

#define QOBS_MAX_NDIM 8 /**< the most dimensions a tensor may have */

/** What the elements of a tensor are. */
typedef enum qobs_dtype {
    QOBS_F32 = 1,
    QOBS_BF16,
    QOBS_F16,
    QOBS_F64,
    QOBS_I8,
    QOBS_I16,
    QOBS_I32,
    QOBS_I64,
    QOBS_F8_E4M3 /**< the finite variant: 448 is the largest, 0x7f is NaN */
} qobs_dtype;

/** A view of the caller's memory, of at most 2^48 elements within 2^61 bytes. Observed tensors are F32, BF16, F16 or F64. */
typedef struct qobs_tensor {
    size_t struct_size;     /**< sizeof(qobs_tensor) */
    const void *data;       /**< the element whose indices are all 0; any alignment; may be NULL where there are no elements */
    qobs_dtype dtype;       /**< what the elements are */
    int ndim;               /**< 0 to QOBS_MAX_NDIM */
    const int64_t *shape;   /**< ndim entries, each >= 0 */
    const int64_t *strides; /**< ndim entries in bytes, negative and zero allowed; NULL: C order without gaps */
} qobs_tensor;

/** Bytes of one element; 0 for a value that is no qobs_dtype. */
QOBS_API size_t qobs_dtype_size(qobs_dtype dtype);
/** "F32", "BF16", ...: the names the safetensors format uses; NULL for a value that is no qobs_dtype. */
QOBS_API const char *qobs_dtype_name(qobs_dtype dtype);

/** @} */

/** @defgroup isa Instruction sets
 * @{ */

/** The instruction sets this library was built for, slowest first: "scalar", then "avx2", "avx512" or "neon". Names are NULL
 * and usable is false from qobs_isa_count() on. */
QOBS_API size_t qobs_isa_count(void);
QOBS_API const char *qobs_isa_name(size_t index);    /**< as qobs_isa_limit takes it */
QOBS_API const char *qobs_isa_summary(size_t index); /**< the extensions it needs */
QOBS_API bool qobs_isa_usable(size_t index);         /**< this CPU has them and the operating system saves their registers */

/** The one in use by observers created from now on. */
QOBS_API const char *qobs_isa_active(void);

/** Use `name` from now on; NULL goes back to the best usable one. Fails for a name that is unknown (INVALID_ARGUMENT) or
 * not usable here (UNSUPPORTED). Existing observers do not change. Any thread, any time. The instruction set names a table of
 * kernels: "avx512" hands calls to the kernels of "avx2" if these are faster. Results are the same bits for every name. */
QOBS_API int qobs_isa_limit(const char *name, qobs_error *error);

/** @} */

/** @defgroup runtime Runtime hooks
 * Both are optional, in structures the caller keeps alive as long as objects made with them. The defaults are the C library's
 * malloc and the calling thread.
 * @{ */

/** Where memory comes from. Called by the thread that calls qobs and never within a task: only what several threads use at the
 * same time must bear to be called by several. When there is no memory the call fails and nothing has changed. */
typedef struct qobs_allocator {
    size_t struct_size;                                        /**< sizeof(qobs_allocator) */
    void *(*allocate)(void *context, size_t size);             /**< at least 16-byte aligned, or NULL */
    void (*release)(void *context, void *memory, size_t size); /**< what allocate gave, and the size asked for */
    void *context;                                             /**< handed to both */
} qobs_allocator;

/** Where work is done: qobs/openmp.h and qobs/pthreadpool.h have ready ones. Tasks begin no loop of their own and take less than 100 KB
 * of stack. */
typedef struct qobs_executor {
    size_t struct_size; /**< sizeof(qobs_executor) */
    size_t threads;     /**< how many run at the same time; work is cut for that many */
    /** Calls task(argument, i) once for each i below count, on any threads in any order, and returns when all are done. */
    void (*parallel_for)(void *context, void (*task)(void *argument, size_t index), void *argument, size_t count);
    void *context; /**< handed to parallel_for */
} qobs_executor;

/** Both hooks. */
typedef struct qobs_runtime {
    size_t struct_size;              /**< sizeof(qobs_runtime) */
    const qobs_allocator *allocator; /**< NULL: malloc */
    const qobs_executor *executor;   /**< NULL: the calling thread */
} qobs_runtime;

/** @} */

/** @defgroup config Configuration
 * @{ */

/** What an observer is to do: a preset, then single settings under the names the upstream class gives them. */
typedef struct qobs_config qobs_config;

/** The presets, each "<family>.<upstream class or registry name>"; NULL from qobs_preset_count() on. */
QOBS_API size_t qobs_preset_count(void);
QOBS_API const char *qobs_preset_name(size_t index);    /**< as qobs_config_create takes it */
QOBS_API const char *qobs_preset_summary(size_t index); /**< one line, for people */

/** A configuration with the defaults of `preset`; the caller destroys it. runtime may be NULL. */
QOBS_API int qobs_config_create(qobs_config **config, const char *preset, const qobs_runtime *runtime, qobs_error *error);
QOBS_API void qobs_config_destroy(qobs_config *config); /**< NULL: does nothing */

/** Sets `key` to `value`, which is JSON or a bare word: 4, true, 0.01, channel, "channel", [128, 128], null (the default).
 * - Every preset: base_name (weight, input, output, q, k, v), nonfinite (refuse, ignore, propagate; by default refuse, but
 *   ignore for quark.PerBlockBFPObserver, which counts such elements as 0; with histograms refuse_nan, which leaves
 *   infinities out, or the same as propagate, or refuse or ignore).
 * - llmc.*: num_bits, type, symmetric, strategy, group_size, block_structure, dynamic, scale_dtype, zp_dtype, observer,
 *   version, ragged and, for moving averages, averaging_constant: the arguments of compressed-tensors' QuantizationArgs and
 *   llm-compressor's observer_kwargs. *mse, too: maxshrink (0 to 1), grid (above 0), patience (not below 0; imatrix_mse: 0
 *   never stops), norm (above 0), expand (not below 1), chunk_size (above 0, changes nothing; not imatrix_mse) and, for
 *   imatrix_mse, strict.
 * - torch.*: dtype, qscheme, reduce_range, quant_min, quant_max, eps, is_dynamic and, for moving averages, averaging_constant,
 *   for channels, ch_axis, for FixedQParamsObserver, scale and zero_point, for HistogramObserver, bins, upsample_rate
 *   (ignored, as in torch since 2.5): the arguments of the torch.ao.quantization observers. HistogramObserver also takes,
 *   unlike upstream, a qscheme per channel with ch_axis: a histogram for every channel; and float32_counts, see
 *   qobs_observer_observe.
 * - quark.*: dtype, qscheme, is_dynamic, symmetric, ch_axis, group_size, zero_point_type, scale_type, scale_format,
 *   scale_calculation_mode, mx_element_dtype: the fields of AMD Quark's QTensorConfig; PerBlockMXDiffsObserver also scope,
 *   PerTensorPercentileObserver percentile, PerTensorMSEObserver stride and start_bin, HistogramObserverPro bins,
 *   reduce_range and upsample_rate (which changes nothing); observers whose bins grow also shifted_counts, see
 *   qobs_observer_observe. symmetric is true by default, dtype int8 (fp4 for MX, bfp16 for BFP); upstream has no defaults
 *   for them.
 * - trt.*: num_bits (2 to 16, or [4, 3] for e4m3), axis (the axes kept), unsigned: the arguments of Model-Optimizer's
 *   calibrators; MseCalibrator also step_size, start_multiplier, stop_multiplier (at most 512 candidates) and narrow_range,
 *   which upstream's quant_func has; NVFP4MSECalibrator block_size, 16 by default; HistogramCalibrator num_bins, skip_zeros,
 *   torch_hist, and of compute_amax method (entropy by default, mse, percentile), stride, start_bin and percentile.
 *
 * What depends on several settings is checked when the configuration is used. */
QOBS_API int qobs_config_set(qobs_config *config, const char *key, const char *value, qobs_error *error);

/** Checks all settings together, as every function that takes a configuration does. */
QOBS_API int qobs_config_check(const qobs_config *config, qobs_error *error);

/** The value of `key` as qobs_config_set takes it, into value[size]; "null" where nothing has been set. 64 bytes are enough. */
QOBS_API int qobs_config_get(const qobs_config *config, const char *key, char *value, size_t size, qobs_error *error);

/** The settings the preset knows; NULL from qobs_config_key_count() on. */
QOBS_API size_t qobs_config_key_count(const qobs_config *config);
QOBS_API const char *qobs_config_key(const qobs_config *config, size_t index); /**< as qobs_config_set takes it */

/** @} */

/** @defgroup plan Granularity
 * @{ */

/** Which elements share a scale: the value seen as (num_observations, *qparam_shape, group_size), without a copy. Reproduces
 * flatten_for_calibration of llm-compressor (for other presets: the reshaping of the observer's forward). */
typedef struct qobs_plan qobs_plan;

#define QOBS_PADDING INT64_MIN /**< the offset of a run that is not there */

/** A run of elements that follow each other in the flattened value and belong to one qparam. */
typedef struct qobs_run {
    int64_t offset; /**< of its first element from the tensor's data, in bytes; QOBS_PADDING: `length` zeros that pad a block */
    int64_t stride; /**< between its elements, in bytes */
    int64_t length; /**< in elements */
    int64_t qparam; /**< index into the flattened qparam_shape */
} qobs_run;

/** The plan for tensors of the shape and strides of `value` (its data is not read). g_idx: int32 or int64, one entry a
 * column, for weights with group or tensor_group strategy; NULL otherwise. A g_idx that holds -1 counts as not initialised
 * (version current and 2025-09). The caller destroys the plan. runtime may be NULL.
 * Refused: combinations of base name and strategy that upstream refuses, sizes that do not divide, illegal settings. Unlike
 * upstream trt.* refuse an axis that value does not have. */
QOBS_API int qobs_plan_create(qobs_plan **plan, const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                              const qobs_runtime *runtime, qobs_error *error);
QOBS_API void qobs_plan_destroy(qobs_plan *plan); /**< NULL: does nothing */

#define QOBS_PLAN_MAX_NDIM (QOBS_MAX_NDIM + 3) /**< the most dimensions a flattened shape has */

/** The flattened shape into shape[QOBS_PLAN_MAX_NDIM]; returns its ndim. The first and last entries are reduced over, those
 * between are the shape of scale. */
QOBS_API int qobs_plan_shape(const qobs_plan *plan, int64_t *shape);

/** How many runs there are. */
QOBS_API int64_t qobs_plan_run_count(const qobs_plan *plan);
/** Run `index` in the order of the flattened value. */
QOBS_API int qobs_plan_run(const qobs_plan *plan, int64_t index, qobs_run *run, qobs_error *error);

/** The flattened value as a C-order copy in `out` (`size` bytes: the product of the flattened shape times the element size),
 * for checking. Ragged groups, which are no rectangle, follow each other without gaps. */
QOBS_API int qobs_plan_copy(const qobs_plan *plan, const qobs_tensor *value, void *out, size_t size, qobs_error *error);

/** @} */

/** @defgroup direct Without an observer
 * @{ */

/** What was seen in observed tensors. Filled as far as struct_size goes; a caller built with a header whose structure ended
 * with `inf` is served, too. */
typedef struct qobs_counts {
    size_t struct_size;      /**< sizeof(qobs_counts) */
    uint64_t batches;        /**< tensors that entered the statistics */
    uint64_t elements;       /**< all of them */
    uint64_t nan;            /**< elements that are NaN */
    uint64_t inf;            /**< infinite elements; torch presets: also what F32 cannot hold */
    uint64_t tokens;         /**< rows of the 2-dimensional tensors: record_observed_tokens of llm-compressor */
    uint64_t nonzero_tokens; /**< quark presets: rows along the last dimension that have an element other than 0 */
} qobs_counts;

/** Minimum and maximum of `value` for every qparam, into min and max: as many elements of value's dtype as the plan has
 * qparams. NaN and infinity as config's nonfinite says; where they are refused or there is no memory, min and max hold anything. counts may
 * be NULL; it is overwritten. Reproduces get_current_min_max (llm-compressor) and torch.aminmax. */
QOBS_API int qobs_minmax(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx, void *min, void *max,
                         qobs_counts *counts, const qobs_runtime *runtime, qobs_error *error);

/** The same for the whole tensor as one group, one element each. Reproduces get_current_global_min_max (llm-compressor). */
QOBS_API int qobs_global_minmax(const qobs_config *config, const qobs_tensor *value, void *min, void *max, qobs_counts *counts,
                                const qobs_runtime *runtime, qobs_error *error);

/** Tokens of a tensor as qobs_counts has them, for any observable dtype; either may be NULL. */
QOBS_API int qobs_count_tokens(const qobs_tensor *value, uint64_t *tokens, uint64_t *nonzero_tokens, qobs_error *error);

/** How a histogram is made. */
typedef struct qobs_bins {
    size_t struct_size; /**< sizeof(qobs_bins) */
    int64_t count;      /**< of bins, 1 to 2^24; all are equally wide */
    float min;          /**< only elements from min to max are counted; equal: every qparam's own minimum and maximum */
    float max;          /**< see min */
    bool magnitude;     /**< of |x| */
    bool skip_zeros;    /**< zeros are left out, of the minimum and maximum, too */
} qobs_bins;

/** The histogram of `value` for every qparam of config's granularity (NULL: of all elements together): bins->count counts
 * for each into counts, the first and the last edge into first_edge and last_edge (a number for each qparam; either may be
 * NULL). Reproduces torch.histc (torch 2 and later) on F32, BF16 and F16; F64 is rounded to F32 first. A range that is one
 * point c becomes [c - 1, c + 1]. NaN is left out, and so are infinities, as they are outside every range; the own range
 * of elements that are not finite is refused (NONFINITE). Counts are exact; torch's are F32, see qobs_histogram_to_float.
 * Differences: where (max - min) * count overflows F32, and where c - 1 and c + 1 are c, torch divides by infinity or
 * zero; here both are computed right. counts_seen may be NULL; it is overwritten, with NaN and infinities of the whole
 * value. Memory for the time of the call: 16 bytes a bin and thread. */
QOBS_API int qobs_histogram(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                            const qobs_bins *bins, uint64_t *counts, float *first_edge, float *last_edge,
                            qobs_counts *counts_seen, const qobs_runtime *runtime, qobs_error *error);

/** n counts as torch.histc gives them on one thread: it counts in F32, where 2^24 + 1 is 2^24, so that no count exceeds
 * 2^24. */
QOBS_API void qobs_histogram_to_float(size_t n, const uint64_t *counts, float *out);

/** What a search (presets *mse) has found. */
typedef struct qobs_search_report {
    size_t struct_size;   /**< sizeof(qobs_search_report) */
    int32_t steps;        /**< candidates there were */
    int32_t stop_step;    /**< candidates looked at until `patience` ran out */
    double error_before;  /**< sum over all elements of |fake_quantize(x) - x|^norm, weighted, with the tensor's own ranges */
    double error;         /**< the same with the ranges taken */
    bool weighted;        /**< by importance */
    const char *fallback; /**< why importance could not be used, a text of the library; NULL: it was, or the preset has none */
} qobs_search_report;

/** The ranges of `value` with the least error, as qobs_observer_observe finds them with an llmc preset *mse, for every qparam,
 * into min and max: as many elements of value's dtype as the plan has qparams. importance: how much each column counts, one a
 * column of a weight (strategies channel, group, tensor_group), finite and not negative; NULL: equally. Any preset takes it.
 * global_scale: the one the scales will be under (version 2025-10; the present one searches without); NULL: none. best_step
 * and errors: one a qparam, as the results of that name. They and report may be NULL. Where NaN and infinity are refused or there is no
 * memory, min and max hold anything, the rest is untouched. Reproduces _grid_search_mse and _grid_search of llm-compressor. */
QOBS_API int qobs_search(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                         const float *importance, const float *global_scale, void *min, void *max, int32_t *best_step,
                         double *errors, qobs_search_report *report, const qobs_runtime *runtime, qobs_error *error);

/** The same for the whole tensor as one group, one element each, where every candidate makes a global scale of its own
 * (version 2025-10, strategy tensor_group). Reproduces get_current_global_min_max of llm-compressor's mse observers, with
 * optimize_global_scale. */
QOBS_API int qobs_global_search(const qobs_config *config, const qobs_tensor *value, void *min, void *max,
                                const qobs_runtime *runtime, qobs_error *error);

/** Scale and zero point for `count` ranges of dtype `dtype` (torch presets: F32). global_scale (llmc presets) multiplies the
 * scales and makes them F32; NULL: there is none. scale and zero_point receive `count` elements of the dtypes
 * qobs_config_qparam_dtypes names (scale F32 with a global scale); either may be NULL. Reproduces calculate_qparams of
 * compressed-tensors, of torch.ao's UniformQuantizationObserverBase and of Quark's observers (for one per tensor each range
 * is a tensor of its own; powers of two are those of a single batch). NO_RESULT where upstream raises. */
QOBS_API int qobs_calculate_qparams(const qobs_config *config, qobs_dtype dtype, size_t count, const void *min, const void *max,
                                    const float *global_scale, void *scale, void *zero_point, qobs_error *error);

/** The global scale (strategy tensor_group) for a range whose bounds are numbers of `dtype`, in which it is computed: scales
 * fill e4m3 when the range fills e2m1. Reproduces generate_gparam of compressed-tensors. */
QOBS_API int qobs_global_scale(const qobs_config *config, qobs_dtype dtype, double min, double max, float *global_scale,
                               qobs_error *error);

/** The dtypes of scale and zero_point for observed tensors of `dtype`. */
QOBS_API int qobs_config_qparam_dtypes(const qobs_config *config, qobs_dtype dtype, qobs_dtype *scale, qobs_dtype *zero_point,
                                       qobs_error *error);

/** @} */

/** @defgroup range Range finders
 * @{ */

/** From a histogram of the caller's (any, collected by any means) to the range to quantize. histogram: 1-dimensional, counts as
 * F32, F64, I32 or I64; bin_edges: F32, one more. config: quark.* (symmetric, dtype) or trt.* (num_bits, unsigned; a range from
 * -amax, or from 0 if unsigned, to amax). runtime may be NULL; its executor is not used. */

/** The range that holds `percentile` percent, 0 to 100. quark.* reproduces get_min_max_by_percentile: symmetric from 0 to the
 * left edge of the first bin whose cumulative share reaches it; asymmetric as meant there, which is not what upstream gives
 * (its observer, quark.PerTensorPercentileObserver, does): the least range of whole bins with at most half of the rest below
 * and above. trt.* reproduces compute_amax(percentile) of Model-Optimizer. */
QOBS_API int qobs_range_by_percentile(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges,
                                      double percentile, float *min, float *max, const qobs_runtime *runtime,
                                      qobs_error *error);

/** The least mean squared error of the bins' centres, each quantized, of ranges to the centres of bins start_bin, start_bin +
 * stride, ... quark.* reproduces get_min_max_by_mse (a start_bin beyond the last bin is the last), trt.* compute_amax(mse) of
 * Model-Optimizer as meant: upstream passes its arguments in the wrong places and returns start_bin. */
QOBS_API int qobs_range_by_mse(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges,
                               int64_t stride, int64_t start_bin, float *min, float *max, const qobs_runtime *runtime,
                               qobs_error *error);

/** The least squared error of elements spread evenly over their bins: clips from either side, 1e-5 of them at a time, until the
 * error rises. torch.* only (dtype): HistogramObserver's _non_linear_param_search, in whose float32 and double it is
 * computed; of the edges the first and the last count, of the histogram what float32 holds. Sums are made in the order
 * torch.sum has for vectors of 8. Where max - min overflows float32 (upstream has no answer) the range is the whole. */
QOBS_API int qobs_range_by_l2_norm(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges,
                                   float *min, float *max, const qobs_runtime *runtime, qobs_error *error);

/** The least Kullback-Leibler divergence, of ranges to the right edge of the first start_bin, start_bin + stride, ... bins;
 * integers of 2 to 16 bits. trt.* only: compute_amax(entropy) of Model-Optimizer, whose change to bin 0 of a numpy histogram
 * stays inside. */
QOBS_API int qobs_range_by_entropy(const qobs_config *config, const qobs_tensor *histogram, const qobs_tensor *bin_edges,
                                   int64_t stride, int64_t start_bin, float *min, float *max, const qobs_runtime *runtime,
                                   qobs_error *error);

/** @} */

/** @defgroup format Number formats
 * @{ */

/** What tensors are quantized to: int2 to int8, int16, int32, uint4, uint8, uint16, fp4_e2m1, fp6_e2m3, fp6_e3m2, fp8_e4m3
 * (finite: 448, no infinity), fp8_e5m2, fp8_e5m3 (AMD Quark's, without sign), e8m0, bf16, f16. */
typedef struct qobs_format qobs_format;

/** The formats; NULL from qobs_format_count() on. */
QOBS_API size_t qobs_format_count(void);
QOBS_API const qobs_format *qobs_format_at(size_t index); /**< kept by the library, as that of qobs_format_find */

/** By name or by a name torch, compressed-tensors or Quark use (float8_e4m3fn, fp4), in any case; NULL: unknown. */
QOBS_API const qobs_format *qobs_format_find(const char *name);
QOBS_API const char *qobs_format_name(const qobs_format *format);   /**< ours */
QOBS_API int qobs_format_bits(const qobs_format *format);           /**< of one packed number */
QOBS_API double qobs_format_least(const qobs_format *format);       /**< finite */
QOBS_API double qobs_format_greatest(const qobs_format *format);    /**< finite */

/** Bytes of one unpacked number: 1, 2 or 4. */
QOBS_API size_t qobs_format_size(const qobs_format *format);

/** The number with that code, of which the low bits count; integers are two's complement. A 32-bit integer that is no float is
 * rounded. */
QOBS_API float qobs_format_decode(const qobs_format *format, uint32_t code);

/** The code of the number nearest to x; ties to even, in e8m0 up. Beyond the limits: the limit, or without `saturate`
 * what torch's cast gives: infinity, else NaN (e4m3: above 464), else the limit. NaN stays; its code is 0 where there is
 * none. */
QOBS_API uint32_t qobs_format_encode(const qobs_format *format, float x, bool saturate);
/** That number itself. */
QOBS_API float qobs_format_round(const qobs_format *format, float x, bool saturate);

/** qobs_format_round for n numbers; out may be x. */
QOBS_API void qobs_format_round_array(const qobs_format *format, size_t n, const float *x, float *out, bool saturate);
/** qobs_format_encode for n numbers; out may be x. Codes are elements of qobs_format_size, signed integers extended to them. */
QOBS_API void qobs_format_encode_array(const qobs_format *format, size_t n, const float *x, void *out, bool saturate);

/** Every element of `value` to the quantized number its qparam gives it, and back, into out: value's dtype and shape,
 * out_strides in bytes (NULL: C order; 0 only where there is one element). out may be value's data with the same strides,
 * otherwise they must not overlap. format: NULL for the configuration's; torch presets: NULL. scale: one a qparam in C order,
 * F32 or value's dtype (torch: F32). zero_point: as many, any dtype; NULL: none. global_scale divides every scale; NULL: none.
 * llmc presets reproduce fake_quantize of compressed-tensors: computed in the dtype of value, but in float for BF16 and F16
 * where scale is F32 or there is a global scale, rounded to value's dtype at the end (upstream returns F32 there unless the
 * strategy is group). torch presets reproduce torch.fake_quantize_per_tensor_affine; NaN becomes the least integer, as there.
 * Elsewhere NaN stays NaN. */
QOBS_API int qobs_fake_quantize(const qobs_config *config, const qobs_format *format, const qobs_tensor *value,
                                const qobs_tensor *g_idx, const qobs_tensor *scale, const qobs_tensor *zero_point,
                                const float *global_scale, void *out, const int64_t *out_strides,
                                const qobs_runtime *runtime, qobs_error *error);

/** @} */

/** @defgroup observer Observers
 * @{ */

/** Watches tensors and decides their scales. */
typedef struct qobs_observer qobs_observer;

/** An observer for `config`, which is copied. It keeps the instruction set that is active now. State is proportional to the
 * number of qparams. The caller destroys it. */
QOBS_API int qobs_observer_create(qobs_observer **observer, const qobs_config *config, const qobs_runtime *runtime,
                                  qobs_error *error);
QOBS_API void qobs_observer_destroy(qobs_observer *observer); /**< NULL: does nothing */

/** How much memory an observer of `config` and its state take with batches of the shape and dtype of `value` (whose data is not
 * read): what qobs_observer_create_in wants. NULL: the observer alone. Takes as much memory for the time of the call. */
QOBS_API int qobs_observer_size(const qobs_config *config, const qobs_tensor *value, size_t *size, qobs_error *error);

/** The same as qobs_observer_create in `memory`, at any address, of `size` bytes, which stays where it is until the observer is
 * destroyed, and then is the caller's again. Of the runtime's allocator comes what is used for the time of a call, and such state
 * as there is no room for: with qobs_observer_size there is room for all but bins that are added, votes (PowOf2 observers) for a
 * fourth scale, batches of another shape or dtype, and merging. */
QOBS_API int qobs_observer_create_in(qobs_observer **observer, void *memory, size_t size, const qobs_config *config,
                                     const qobs_runtime *runtime, qobs_error *error);

/** Takes one batch into the statistics. Empty tensors are ignored. A batch with NaN or infinity is refused with their number
 * and the place of the first, unless nonfinite says otherwise. Later batches must lead to the same qparam shape and, except for
 * torch.*, which keeps its range in F32, have the same dtype.
 * - llmc.*: with base name weight a second tensor is ignored until qobs_observer_reset (version current, as upstream).
 * - llmc.*mse: the ranges are those with the least error among p = 1 - i/grid for i below maxshrink * grid, of the batch's
 *   range times expand. After `patience` candidates in a row with which no qparam improves, all stop. Tensors in BF16, F16 and
 *   F64 are searched in float; where errors are as good as equal (2e-6) the choice may differ from upstream's. Version 2025-10
 *   with tensor_group searches the whole tensor's range first and the groups' under the global scale it gives. Version 2025-09
 *   averages blocks and all groups but the first, and nothing else, as upstream.
 * - quark.*: a batch that leads to another qparam shape begins anew (BFP refuses it, as upstream), and with is_dynamic, or
 *   per group, every batch does, whatever its dtype. Each batch of a PowOf2 observer is one vote for its scale and zero
 *   point, and the result is the most common (upstream votes whenever it is asked for qparams). The PowOf2MinMSE observers
 *   and PerBlockMXDiffsObserver search each batch while it is there, where upstream keeps the last one: nothing of it is
 *   kept but what was chosen. BF16 and F16 are searched in float.
 * - trt.MseCalibrator: sums the squared errors of the multiples start_multiplier to stop_multiplier of an amax (see
 *   qobs_observer_give_amax): 8 bytes a candidate and qparam. trt.NVFP4MSECalibrator takes one tensor, as upstream, whose last
 *   dimension is cut into blocks, and keeps the scale chosen of the 126 e4m3 has.
 * - quark.PerTensorHistogramObserver, PercentileObserver, MSEObserver and trt.HistogramCalibrator: 8 bytes a bin; bins of
 *   the first batch's width are added where a batch reaches further, up to 2^20, beyond which the batch is refused (upstream
 *   takes any number). As upstream, Quark's add old counts to the first bins even where bins have come before them; with
 *   shifted_counts they go along with their bins. trt's torch_hist=false counts by numpy.histogram's rule, on one thread,
 *   and does not count magnitudes below the least of the first batch. Where zeros are skipped trt ignores a batch without
 *   other elements (upstream raises).
 * - torch.HistogramObserver: 8 bytes a bin and qparam are kept, 16 more are used during the call. Inside the range known so
 *   far a batch is read once, else twice. Counts are upstream's, float32, until one reaches 2^24, where float32 begins to
 *   lose them: from there on they are kept as doubles, exact up to 2^53. With float32_counts they stop at 2^24, as
 *   upstream's on one thread.
 *
 * Reproduces forward (torch.ao, Quark), Observer.forward (llm-compressor) and collect (Model-Optimizer). */
QOBS_API int qobs_observer_observe(qobs_observer *observer, const qobs_tensor *value, const qobs_tensor *g_idx,
                                   qobs_error *error);

/** The steps of that one by one. Sizes are those of the whole arrays in bytes and checked before anything changes; where the
 * ranges then leave no scale (NO_RESULT) the batch has been taken all the same. Empty tensors change nothing: what was there
 * is read.
 *
 * The ranges after value has been taken in. min and max: `size` bytes each, of the dtype of value (torch: F32). Reproduces
 * get_min_max of llm-compressor. */
QOBS_API int qobs_observer_get_min_max(qobs_observer *observer, const qobs_tensor *value, const qobs_tensor *g_idx, void *min,
                                       void *max, size_t size, qobs_error *error);

/** The same for the range of the whole tensor (llmc version 2025-09 and 2025-10), which is averaged on its own: the global
 * scale is made of it. qobs_observer_observe does both. Reproduces get_global_min_max of llm-compressor. */
QOBS_API int qobs_observer_get_global_min_max(qobs_observer *observer, const qobs_tensor *value, void *min, void *max,
                                              size_t size, qobs_error *error);

/** Scale and zero point after value has been taken in; value NULL: the latest, as qobs_observer_qparams. Either result may be
 * NULL. Reproduces get_qparams of llm-compressor's version 2025-09. */
QOBS_API int qobs_observer_get_qparams(qobs_observer *observer, const qobs_tensor *value, const qobs_tensor *g_idx, void *scale,
                                       size_t scale_size, void *zero_point, size_t zero_point_size, qobs_error *error);

/** The same with the `count` dimensions of value that are in dim kept and every other one reduced, whatever the strategy
 * (llmc version 2025-09). Negative ones count from the end; none kept, or all, is one range for the whole. Reproduces
 * get_qparams_along_dim. */
QOBS_API int qobs_observer_get_qparams_along_dim(qobs_observer *observer, const qobs_tensor *value, const int *dim,
                                                 size_t count, void *scale, size_t scale_size, void *zero_point,
                                                 size_t zero_point_size, qobs_error *error);

/** Counts the tokens of value without taking it in: record_observed_tokens. */
QOBS_API int qobs_observer_record_tokens(qobs_observer *observer, const qobs_tensor *value, qobs_error *error);

/** Takes activations into the importance of the columns of a weight (llmc.imatrix_mse): the last dimension of `activations`
 * are the weight's columns, everything before counts tokens. The weight comes after them: an element's error is weighted by
 * the mean square of its column's activations, relative to the mean of all columns. Elements may be NaN or infinite; then
 * importance cannot be used, nor where no activations were seen, all were 0, their columns are not the weight's, or the
 * strategy is none of channel, group and tensor_group: the search is then unweighted and qobs_observer_search_report says
 * why, or with strict=true qobs_observer_observe fails. Sums are kept in double, where upstream has f32. Reproduces the hook
 * of IMatrixMSEObserver.attach. */
QOBS_API int qobs_observer_observe_importance(qobs_observer *observer, const qobs_tensor *activations, qobs_error *error);

/** Before the first batch. trt.MseCalibrator: the magnitudes whose multiples are tried, of the shape of the result amax
 * (`amax` of upstream's constructor); trt.NVFP4MSECalibrator: that of the whole tensor, 1 element (`global_amax`). Finite,
 * not negative, computed with as F32. Without it they are those of the first batch. qobs_observer_reset forgets it. */
QOBS_API int qobs_observer_give_amax(qobs_observer *observer, const qobs_tensor *amax, qobs_error *error);

/** Before the first batch, for the same observers: what the squared error of an element is multiplied by, a number for each
 * index of the last dimension (within a block), finite and not negative. Covers upstream's error_func where that is a
 * weight. */
QOBS_API int qobs_observer_give_error_weight(qobs_observer *observer, const qobs_tensor *weight, qobs_error *error);

/** Of the last batch. NO_DATA until one has been searched. Results best_step, errors and errors_before hold the same for
 * every qparam. */
QOBS_API int qobs_observer_search_report(const qobs_observer *observer, qobs_search_report *report, qobs_error *error);

/** Forgets everything observed, also what Quark's reset_state leaves behind (votes, the magnitudes of BFP). */
QOBS_API void qobs_observer_reset(qobs_observer *observer);

/** Adds to `observer` what `count` others have observed, as if their batches had come from other machines; they must have the
 * same settings, dtype and qparam shape (those without data are skipped). Reproduces Observer.sync_activation_stats of
 * llm-compressor: extremes of running ranges, mean of moving averages; a memoryless range stays, unless there was none.
 * Votes and importance are added, and so are histograms, brought to the union of their ranges as those of batches are; what
 * a search has found is each observer's own, or that of the first where there was none. trt.MseCalibrator adds errors, which
 * must be of the same amax; PerBlockMXDiffsObserver keeps the exponent it chose for a block, as far as `scope` below that of
 * the merged magnitude goes. */
QOBS_API int qobs_observer_merge(qobs_observer *observer, const qobs_observer *const *others, size_t count, qobs_error *error);

/** The bytes qobs_observer_save writes. */
QOBS_API size_t qobs_observer_save_size(const qobs_observer *observer);
/** The observer's settings and statistics as bytes that any machine's qobs of the same or a later version reads, into the
 * caller's buffer of `size` bytes. */
QOBS_API int qobs_observer_save(const qobs_observer *observer, void *buffer, size_t size, qobs_error *error);

/** A new observer from such bytes. Whatever is not exactly what was saved is refused. */
QOBS_API int qobs_observer_load(qobs_observer **observer, const void *buffer, size_t size, const qobs_runtime *runtime,
                                qobs_error *error);

/** What it has seen. */
QOBS_API int qobs_observer_counts(const qobs_observer *observer, qobs_counts *counts, qobs_error *error);

#define QOBS_RESULT_NAME 72 /**< bytes that hold any result's name */

/** What there is to read now: min_vals, max_vals (llmc) or min_val, max_val (torch, Quark) or amax (Quark's blocks, trt),
 * histogram, new_min and new_max (HistogramObserver and Pro: F32 counts, bins last, and the range found in them), calib_hist
 * and calib_bin_edges (F32; histograms that grow by bins, whose min_val and max_val or amax are the range found), scale,
 * zero_point (all but trt), and global_scale with strategy tensor_group (the 2025 versions: global_min and global_max, too).
 * llmc version 2025-09 has min_val[ID] and max_val[ID] under upstream's tensor_id: default, with groups also 1, 2, ..., with
 * blocks block_0_0, ..., and none with averaging_constant 1. num_observed_tokens (I64): Quark, and llmc version 2025-09 once
 * it has seen a matrix. llmc.*mse: of the last batch best_step (I32, the candidate taken, -1: none), errors and
 * errors_before (F64, sums of |fake_quantize(x) - x|^norm over the range taken and the batch's own), all in the shape of
 * min_vals, and stop_step (I32, candidates looked at); Quark's and trt's searches the same in the shape of min_val or amax,
 * where upstream's candidates are scales, and PerBlockMXDiffsObserver init_scale (F32, of candidate 0); errors_before are of
 * the base scale, of trt of the last multiple; imatrix_mse: imatrix_sum (F32, a column each) and imatrix_count (I64,
 * tokens). The observers that look at no data have scale and zero_point (FixedQParamsObserver) or nothing
 * (PlaceholderObserver). */
typedef struct qobs_result {
    size_t struct_size;           /**< sizeof(qobs_result) */
    char name[QOBS_RESULT_NAME];  /**< as qobs_observer_read takes it */
    qobs_dtype dtype;             /**< of its elements */
    int ndim;                     /**< dimensions of the shape */
    int64_t shape[QOBS_MAX_NDIM]; /**< the first ndim entries count */
    size_t size;                  /**< bytes of the whole */
} qobs_result;

/** How many results there are to read now. */
QOBS_API size_t qobs_observer_result_count(const qobs_observer *observer);
/** The description of result `index`. */
QOBS_API int qobs_observer_result(const qobs_observer *observer, size_t index, qobs_result *result, qobs_error *error);
/** The description of result `name`. */
QOBS_API int qobs_observer_find(const qobs_observer *observer, const char *name, qobs_result *result, qobs_error *error);

/** Result `name` in C order into out, which has exactly the size the description gives. Reading drops nothing. */
QOBS_API int qobs_observer_read(const qobs_observer *observer, const char *name, void *out, size_t size, qobs_error *error);

/** Scale and zero point in one go, sizes as described; either may be NULL. */
QOBS_API int qobs_observer_qparams(const qobs_observer *observer, void *scale, size_t scale_size, void *zero_point,
                                   size_t zero_point_size, qobs_error *error);

/** Observers of layers that run as one (gate_proj and up_proj; q_proj, k_proj and v_proj) share one global scale: that of
 * the largest magnitude any of them has observed so far. All have strategy tensor_group and data. It holds until an
 * observer takes another batch; with the 2025 versions until qobs_observer_observe or qobs_observer_get_global_min_max, so
 * that the steps in between are taken, and searched, under it. Reproduces FusionHandler and get_global_scale of
 * llm-compressor; as reading drops nothing here, its rules for when statistics may be dropped have nothing to decide. */
QOBS_API int qobs_observers_fuse(qobs_observer *const *observers, size_t count, qobs_error *error);

/** The same for a magnitude that is known from elsewhere: of the whole tensor where an observer sees a slice of it, or of
 * layers on other machines. */
QOBS_API int qobs_observer_set_amax(qobs_observer *observer, double amax, qobs_error *error);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
