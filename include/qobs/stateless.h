/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/** @file
 * Functions on one tensor or histogram that need no observer. Most take a structure of arguments: the caller sets
 * struct_size and the members it needs, and leaves the others 0. Sizes are in bytes and must match exactly. A global
 * scale is finite and above 0. After a failure inputs are unchanged, also where an output is the input; other output
 * arrays may have been overwritten. */
#ifndef QOBS_QOBS_STATELESS_H
#define QOBS_QOBS_STATELESS_H

#include "format.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup direct Without an observer
 * Functions on one tensor that need no observer.
 * @{ */

/** Arguments of qobs_minmax and qobs_global_minmax. Members that are not listed as optional must be set. */
typedef struct qobs_minmax_args {
    size_t struct_size;          /**< sizeof(qobs_minmax_args) */
    const qobs_config *config;   /**< granularity and nonfinite; NULL: axes, and NaN and infinity are refused */
    const qobs_tensor *value;    /**< F32, BF16, F16 or F64 */
    const qobs_tensor *g_idx;    /**< as in qobs_plan_create; NULL: none */
    const int *axes;             /**< dimensions to keep, in place of config's granularity; NULL: config's, or none */
    size_t axis_count;           /**< number of axes; negative axes count from the end */
    void *min;                   /**< receives one element of value's dtype for each qparam */
    void *max;                   /**< as min */
    size_t size;                 /**< bytes of min, and of max */
    qobs_counts *counts;         /**< receives the counts of the tensor; NULL: not wanted */
    const qobs_runtime *runtime; /**< NULL: the defaults */
} qobs_minmax_args;

/** Computes the minimum and maximum of a tensor for every qparam: of the granularity of `config`, or for every index of
 * the kept `axes`. Without both there is one range, and so there is if all axes are kept, as in Model-Optimizer. The
 * setting nonfinite decides about NaN and infinity. Fails with NO_DATA if there are no elements.
 * Reproduces get_current_min_max (llm-compressor), torch.aminmax and reduce_amax (Model-Optimizer).
 * @since 0.2.0 */
QOBS_API int qobs_minmax(const qobs_minmax_args *args, qobs_error *error);

/** Computes the minimum and maximum of the complete tensor, one element each. config is needed; g_idx and axes are
 * NULL. Otherwise like qobs_minmax. Reproduces get_current_global_min_max (llm-compressor).
 * @since 0.2.0 */
QOBS_API int qobs_global_minmax(const qobs_minmax_args *args, qobs_error *error);

/** Parameters of a histogram. */
typedef struct qobs_histogram_options {
    size_t struct_size; /**< sizeof(qobs_histogram_options) */
    int64_t count;      /**< number of bins, 1 to 2^24; all have the same width */
    float min;          /**< elements from min to max are counted; min == max: the extrema of each qparam */
    float max;          /**< see min */
    bool magnitude;     /**< count |x| instead of x */
    bool skip_zeros;    /**< zeros count neither in bins nor for the extrema */
} qobs_histogram_options;

/** Arguments of qobs_histogram. */
typedef struct qobs_histogram_args {
    size_t struct_size;                    /**< sizeof(qobs_histogram_args) */
    const qobs_config *config;             /**< its granularity; NULL: one histogram of all elements */
    const qobs_tensor *value;              /**< F32, BF16, F16 or F64 */
    const qobs_tensor *g_idx;              /**< as in qobs_plan_create; NULL: none */
    const qobs_histogram_options *options; /**< bins */
    uint64_t *counts;                      /**< receives options->count counts for each qparam */
    size_t counts_size;                    /**< bytes of counts */
    float *first_edge;                     /**< receives one number for each qparam; NULL: not wanted */
    float *last_edge;                      /**< as first_edge */
    size_t edges_size;                     /**< bytes of first_edge, and of last_edge */
    qobs_counts *totals;                   /**< receives the counts of the complete tensor; NULL: not wanted */
    const qobs_runtime *runtime;           /**< NULL: the defaults */
} qobs_histogram_args;

/** Computes the histogram of a tensor for every qparam. Counts are exact. The call uses 16 bytes of memory for each bin
 * and thread.
 * Reproduces torch.histc (torch 2 and later) for F32, BF16 and F16; F64 is rounded to F32 first. A range of one
 * point c becomes [c - 1, c + 1]. NaN and infinities are not counted. If min == max and a qparam has NaN or
 * infinity, the call fails with NONFINITE.
 * Differences: torch divides by infinity if (max - min) * count overflows F32. It divides by zero if c - 1 and c + 1
 * round to c. Here both cases are computed correctly. torch counts in the dtype of the tensor, by adding 1: on one
 * thread, a count of BF16 stops at 256, one of F16 at 2048, one of F32 at 2^24. Here none stops.
 * @since 0.2.0 */
QOBS_API int qobs_histogram(const qobs_histogram_args *args, qobs_error *error);

/** Arguments of qobs_search. */
typedef struct qobs_search_args {
    size_t struct_size;          /**< sizeof(qobs_search_args) */
    const qobs_config *config;   /**< an llmc preset with mse in its name */
    const qobs_tensor *value;    /**< F32, BF16, F16 or F64 */
    const qobs_tensor *g_idx;    /**< as in qobs_plan_create; NULL: none */
    const float *importance;     /**< weight of each column of a weight tensor, finite, not negative; NULL: equal */
    size_t importance_size;      /**< bytes of importance */
    const float *global_scale;   /**< global scale of the later scales (version 2025-10 only); NULL: none */
    void *min;                   /**< receives one element of value's dtype for each qparam */
    void *max;                   /**< as min */
    size_t size;                 /**< bytes of min, and of max */
    int32_t *best_step;          /**< receives the chosen step of each qparam; NULL: not wanted */
    size_t best_step_size;       /**< bytes of best_step */
    double *errors;              /**< receives the error of each qparam; NULL: not wanted */
    size_t errors_size;          /**< bytes of errors */
    qobs_search_report *report;  /**< receives sums over all qparams; NULL: not wanted */
    const qobs_runtime *runtime; /**< NULL: the defaults */
} qobs_search_args;

/** Searches the range with the smallest quantization error for every qparam of a tensor, as an observer with an llmc
 * preset *mse does. Every *mse preset accepts importance, with strategies channel, group and tensor_group.
 * Reproduces _grid_search_mse and _grid_search of llm-compressor.
 * @since 0.2.0 */
QOBS_API int qobs_search(const qobs_search_args *args, qobs_error *error);

/** Arguments of qobs_qparams_from_ranges. */
typedef struct qobs_qparams_from_ranges_args {
    size_t struct_size;        /**< sizeof(qobs_qparams_from_ranges_args) */
    const qobs_config *config; /**< its formula */
    qobs_dtype dtype;          /**< of min and max; torch presets: F32 */
    size_t count;              /**< number of ranges */
    const void *min;           /**< `count` elements of dtype */
    const void *max;           /**< as min */
    size_t size;               /**< bytes of min, and of max */
    const float *global_scale; /**< llmc presets: multiplies the scales, which become F32; quark presets of fp4: scale
                                    of the second of two quantizers; NULL: none */
    void *scale;               /**< receives `count` scales; NULL: not wanted */
    size_t scale_size;         /**< bytes of scale */
    void *zero_point;          /**< receives `count` zero points; NULL: not wanted */
    size_t zero_point_size;    /**< bytes of zero_point */
    qobs_dtype global_scale_dtype; /**< BF16, F16: that of global_scale, and of the scales if min and max have it, too
                                        (llmc presets); F32 or 0: F32 */
} qobs_qparams_from_ranges_args;

/** Computes scale and zero point for ranges. They have the dtypes of qobs_config_qparam_dtypes. Fails with NO_RESULT if
 * upstream raises an exception.
 * Reproduces calculate_qparams of compressed-tensors, of torch.ao's UniformQuantizationObserverBase and of Quark's
 * observers. For Quark's observers per tensor, each range is that of one tensor. For its powers of two, each range
 * is that of one batch.
 * With a global scale, presets of Quark with fp4 reproduce realign_single_sequential_quantizer (Quark 0.13) for scales
 * that are quantized to e4m3: scale = b * global_scale with b = e4m3(amax / (global_scale * 6)), 1 in place of 0. The
 * stored b is e4m3(scale / global_scale). global_scale is the result of quark.PerTensorMinMaxObserver with
 * dtype=fp8_e4m3 and quant_max_first_level=6, which observes the magnitudes of the blocks.
 * @since 0.3.0 */
QOBS_API int qobs_qparams_from_ranges(const qobs_qparams_from_ranges_args *args, qobs_error *error);

/** Computes the global scale for a range (strategy tensor_group): a range that fills e2m1 then gives scales that fill
 * e4m3. min, max and the computation have dtype `dtype`. min and max must be finite. Fails with NO_RESULT if the global
 * scale is 0 in F32 (F64 magnitudes above 10^48). Reproduces generate_gparam of compressed-tensors, which has 1 for
 * NaN and 0 for infinity.
 * @since 0.1.0 */
QOBS_API int qobs_global_scale(const qobs_config *config, qobs_dtype dtype, double min, double max, float *global_scale,
                               qobs_error *error);

/** Computes the qparams of one tensor as qobs_qparams_from_tensor does, with a configuration that is made once. Writes
 * what `out` asks for, of the sizes of qobs_config_qparam_layout. g_idx: as in qobs_plan_create; NULL: none. runtime
 * may be NULL. Several threads may call it at the same time with one configuration.
 * @since 0.3.0 */
QOBS_API int qobs_config_qparams_from_tensor(const qobs_config *config, const qobs_tensor *value,
                                             const qobs_tensor *g_idx, const qobs_qparam_buffers *out,
                                             const qobs_runtime *runtime, qobs_error *error);

/** Arguments of qobs_quantize. */
typedef struct qobs_quantize_args {
    size_t struct_size;            /**< sizeof(qobs_quantize_args) */
    const qobs_config *config;     /**< an llmc preset: granularity and format */
    const qobs_format *format;     /**< fp4, fp6_e2m3 or fp8_e4m3; NULL: that of config */
    const qobs_tensor *value;      /**< F32, BF16, F16 or F64 */
    const qobs_tensor *g_idx;      /**< as in qobs_plan_create; NULL: none */
    const qobs_tensor *scale;      /**< one element for each qparam in C order, F32 or value's dtype */
    const qobs_tensor *zero_point; /**< as many elements of any dtype; NULL: none */
    const float *global_scale;     /**< divides every scale; NULL: none */
    void *codes;                   /**< receives one byte for each element, in C order; must not overlap value */
    size_t codes_size;             /**< bytes of codes, at least one for each element; packed: for two */
    const qobs_runtime *runtime;   /**< NULL: the defaults */
    double *squared_error;         /**< receives the sum of squares of value - fake-quantized value; NULL: not wanted */
    double *energy;                /**< receives the sum of the squares of value; NULL: not wanted */
    int packed;                    /**< 1: two codes of 4 bits in a byte, see below; 0: a byte each */
} qobs_quantize_args;

/** Quantizes every element of a tensor with its qparam to a code: a signed integer of 8 bits, the byte of fp8_e4m3, or
 * sign and magnitude of fp4 in the low 4 bits and of fp6_e2m3 in the low 6. Codes of NaN are 0, in fp8_e4m3 0x7F, in
 * fp6_e2m3 0x20. qobs_pack packs codes.
 * The computation has one rounding to value's dtype for each operation, or to float if scale is F32 or there is a
 * global scale. Several threads may call it at the same time. Reproduces quantize and the compressors of
 * compressed-tensors.
 * The sums are made in the same pass, against the numbers of qobs_fake_quantize. They are in float (F64: double) over
 * at most 1,024 elements, then in double. NaN and infinity spread into them, and so do squares above the largest float.
 * They have the same bits on every instruction set and for every number of threads. If the function fails, they are not
 * written.
 * packed: codes has half as many bytes, and holds what qobs_pack makes of the codes with dim 1, and offset 8 for
 * integers. Codes must have 4 bits, and the last dimension of value must be a multiple of 8. It saves a pass over the
 * codes. The function allocates a byte for each element if groups are ragged or odd, if the last dimension of value is
 * not contiguous or has a qparam for each element, or if there is a g_idx. The sums may differ in their last bits from
 * those of codes that are not packed.
 * @since 0.2.0 */
QOBS_API int qobs_quantize(const qobs_quantize_args *args, qobs_error *error);

/** The findings of qobs_round_codes. */
typedef struct qobs_round_report {
    size_t struct_size;   /**< sizeof(qobs_round_report) */
    double error_before;  /**< sum of d H d^T over the rows, of the nearest codes, H with dampening */
    double error;         /**< the same of the codes returned; never larger if hessian_count is 0 or 1 */
    double squared_error; /**< sum of d * d of the codes returned */
    double energy;        /**< sum of the squares of value */
    uint64_t changed;     /**< number of codes that are not the nearest */
    int passes;           /**< passes made; the last one may have changed nothing */
} qobs_round_report;

/** Arguments of qobs_round_codes. */
typedef struct qobs_round_args {
    size_t struct_size;            /**< sizeof(qobs_round_args) */
    const qobs_config *config;     /**< as in qobs_quantize; strategy channel, group or tensor_group */
    const qobs_format *format;     /**< as in qobs_quantize */
    const qobs_tensor *value;      /**< F32, BF16, F16 or F64 (rounded to float); its last dimension has columns */
    const qobs_tensor *scale;      /**< as in qobs_quantize */
    const qobs_tensor *zero_point; /**< as in qobs_quantize */
    const float *global_scale;     /**< as in qobs_quantize */
    /** H = sum of x x^T over the inputs x of the weight: F32 or F64 of shape (blocks, n, n), as the result hessian_sum
     * of qobs.local_hessian. n: all columns, or blocks of columns: they start at every multiple of n, and again with
     * each group if n is smaller than a group. Entries beyond the columns of a short last block are not read. */
    const qobs_tensor *hessian;
    int64_t hessian_count;       /**< tokens, by which H is divided; 0 and 1: not known, and H counts as it is */
    int passes;                  /**< most passes over the columns, to 100; 0: rounding_passes of config, or 4 */
    void *codes;                 /**< receives one byte for each element, as of qobs_quantize */
    size_t codes_size;           /**< bytes of codes, at least one for each element */
    qobs_round_report *report;   /**< receives what was found; NULL: not wanted */
    const qobs_runtime *runtime; /**< NULL: the defaults */
} qobs_round_args;

/** Rounds every element to a code such that the error of the outputs, d H d^T with d = value - quantized value, is
 * small: coordinate descent from the codes of qobs_quantize, with given scales and zero points. Each step changes one
 * code to the best one for the present others and lowers the error of its row. Columns go in the order of falling
 * H_jj. It ends after a pass that changes nothing. An element whose column has H_jj = 0 keeps the nearest code, and so
 * do NaN and infinity.
 * H counts as its symmetric part, in float, plus dampening_frac of config times the mean of H_jj of its block on the
 * diagonal. With T = hessian_count > 1 its other entries are divided by 1 + sqrt(n / T) / 2, because errors cancel less
 * in other tokens than in these. Steps whose gain is within the rounding of float sums are left out.
 * Fails with INVALID_ARGUMENT if H has NaN, infinity, or numbers below 0 on its diagonal.
 * Codes have the same bits on every instruction set, for every number of threads, and however rows are divided among
 * calls. Time: rows * n * columns multiply-adds a pass. Memory: about 256 MB at most, or 12 bytes for 128 rows.
 * @since 0.2.0 */
QOBS_API int qobs_round_codes(const qobs_round_args *args, qobs_error *error);

/** Arguments of qobs_gptq_block. */
typedef struct qobs_gptq_block_args {
    size_t struct_size;            /**< sizeof(qobs_gptq_block_args) */
    const qobs_config *config;     /**< an llmc or qobs preset: the number format; granularity does not matter */
    const qobs_format *format;     /**< as in qobs_quantize */
    const qobs_tensor *factor;     /**< F32 of shape (columns, columns), contiguous rows: U with U^T U = H^-1 */
    const qobs_tensor *scale;      /**< F32, BF16 or F16 of shape (rows, columns), at most 1024 columns */
    const qobs_tensor *zero_point; /**< any dtype, the shape of scale; NULL: none */
    float *value;                  /**< [rows][columns]; receives what compensation has left */
    float *quantized;              /**< the same; receives the numbers that value is quantized to */
    float *errors;                 /**< the same; receives (value - quantized) / factor[column][column] */
    float *losses;                 /**< the same; receives the squares of errors */
    size_t value_size;             /**< bytes of each of the four */
    const qobs_runtime *runtime;   /**< NULL: the defaults */
} qobs_gptq_block_args;

/** Quantizes a block of columns by GPTQ: column after column, each to its nearest numbers, and errors[.][k] times
 * factor[k][j] is subtracted from each column j from k on. Every operation is rounded to float; quantized numbers are
 * computed in the dtype of scale. Scales and zero points belong to elements; their strides may be 0. Arrays must not
 * overlap. Fails with NONFINITE if value has NaN or infinity; after a failure value is unchanged.
 * The same bits on every instruction set and for every number of threads. Several threads may call it at the same time.
 * Memory: 384 bytes for each column and part of the work. Reproduces gptq_block_update of llm-compressor 0.14.
 * @since 0.2.0 */
QOBS_API int qobs_gptq_block(const qobs_gptq_block_args *args, qobs_error *error);

/** Arguments of qobs_dequantize. */
typedef struct qobs_dequantize_args {
    size_t struct_size;            /**< sizeof(qobs_dequantize_args) */
    const qobs_config *config;     /**< an llmc preset: granularity and format */
    const qobs_format *format;     /**< fp4, fp6_e2m3 or fp8_e4m3; NULL: that of config */
    const qobs_tensor *codes;      /**< as of qobs_quantize, in a dtype of one byte, with any strides */
    const qobs_tensor *g_idx;      /**< as in qobs_plan_create; NULL: none */
    const qobs_tensor *scale;      /**< one element for each qparam in C order, F32 or dtype */
    const qobs_tensor *zero_point; /**< as many elements of any dtype; NULL: none */
    const float *global_scale;     /**< divides every scale; NULL: none */
    void *out;                     /**< receives dtype and the shape of codes; must not overlap codes */
    const int64_t *out_strides;    /**< bytes, positive, no two elements overlap; NULL: C order */
    size_t out_size;               /**< bytes of out, at least those its elements span */
    qobs_dtype dtype;              /**< of out: F32, BF16, F16 or F64 */
    const qobs_runtime *runtime;   /**< NULL: the defaults */
} qobs_dequantize_args;

/** Computes the numbers that codes stand for: (number of the code - zero point) * scale. The arithmetic is that of
 * qobs_quantize, and its result is that of qobs_fake_quantize but for the sign of zeros and for NaN. The high 4 bits of
 * fp4 codes and 2 of fp6 codes are ignored. Packed codes go through qobs_unpack first. Several threads may call it at
 * the same time. Reproduces dequantize of compressed-tensors.
 * @since 0.2.0 */
QOBS_API int qobs_dequantize(const qobs_dequantize_args *args, qobs_error *error);

/** Arguments of qobs_pack and qobs_unpack. */
typedef struct qobs_pack_args {
    size_t struct_size; /**< sizeof(qobs_pack_args) */
    int bits;           /**< of a code, 1 to 8 */
    int dim;            /**< 1: each row is one stream of bits; 0: each column */
    int64_t rows;       /**< of the codes */
    int64_t columns;    /**< of the codes */
    int word_bits;      /**< streams end at a multiple of 32 bits, in words, or of 8 bits, in bytes (dim 1 only) */
    int offset;         /**< added to a code before it is packed: 2^(bits - 1) for signed integers, else 0 */
    void *codes;        /**< rows x columns bytes in C order; qobs_pack only reads them */
    size_t codes_size;  /**< bytes of codes */
    void *packed;       /**< the streams; qobs_unpack only reads them */
    size_t packed_size; /**< bytes of packed: dim 1: rows streams, dim 0: words x columns in C order */
} qobs_pack_args;

/** Packs codes of one byte. Element k of a stream is at its bits [k * bits, (k + 1) * bits), low bits first, in
 * little-endian words; the last word is filled with zero bits. Two fp4 codes a byte have bits 4 and word_bits 8, four
 * fp6 codes in three bytes bits 6 and word_bits 8. A code that needs more bits is refused.
 * Reproduces pack_to_int32, pack_fp4_to_uint8 and pack_fp6_to_uint8 of compressed-tensors.
 * @since 0.2.0 */
QOBS_API int qobs_pack(const qobs_pack_args *args, qobs_error *error);

/** Unpacks codes. The inverse of qobs_pack: with an offset codes are signed.
 * Reproduces unpack_from_int32, unpack_fp4_from_uint8 and unpack_fp6_from_uint8 of compressed-tensors.
 * @since 0.2.0 */
QOBS_API int qobs_unpack(const qobs_pack_args *args, qobs_error *error);

/** Arguments of qobs_fake_quantize. */
typedef struct qobs_fake_quantize_args {
    size_t struct_size;            /**< sizeof(qobs_fake_quantize_args) */
    const qobs_config *config;     /**< granularity and format */
    const qobs_format *format;     /**< NULL: the format of config; torch presets: NULL */
    const qobs_tensor *value;      /**< F32, BF16, F16 or F64 */
    const qobs_tensor *g_idx;      /**< as in qobs_plan_create; NULL: none */
    const qobs_tensor *scale;      /**< one element for each qparam in C order, F32 or value's dtype (torch: F32) */
    const qobs_tensor *zero_point; /**< as many elements of any dtype; NULL: none */
    const float *global_scale;     /**< divides every scale; NULL: none */
    void *out;                     /**< receives value's dtype and shape; may be value's data with the same strides */
    const int64_t *out_strides;    /**< bytes, positive, no two elements overlap; NULL: C order */
    size_t out_size;               /**< bytes of out, at least those its elements span */
    const qobs_runtime *runtime;   /**< NULL: the defaults */
    const qobs_tensor *amax;       /**< modelopt presets: one magnitude for each qparam, F32, BF16, F16 or F64, in place
                                        of format, scale, zero_point and global_scale; NULL: none */
} qobs_fake_quantize_args;

/** Quantizes and dequantizes every element of a tensor with its qparam. `out` must not overlap value's data in another
 * way than being it.
 * llmc presets reproduce fake_quantize of compressed-tensors. The computation is in value's dtype, but in float for
 * BF16 and F16 if scale is F32 or there is a global scale. The result is rounded to value's dtype; upstream returns
 * F32 then, except for strategy group.
 * torch presets reproduce torch.fake_quantize_per_tensor_affine, which maps NaN to the smallest integer. In other
 * presets NaN stays NaN.
 * With amax, modelopt presets reproduce fake_tensor_quant and scaled_e4m3 of Model-Optimizer 0.47 for the numbers of
 * num_bits, unsigned and, in modelopt.MseCalibrator, narrow_range. The computation is in float. If amax is at most
 * 2^-24, integers are 0, and e4m3 numbers are those of amax 1, with version=0.48 only if it is at most 448 / FLT_MAX.
 * Negative elements are an error with unsigned integers.
 * @since 0.2.0 */
QOBS_API int qobs_fake_quantize(const qobs_fake_quantize_args *args, qobs_error *error);

/** Adds up the squares of value - other, and of value. Both tensors are F32, BF16, F16 or F64, have the same dtype and
 * the same shape; strides may differ. Sums are in float (F64: double) over at most 1,024 elements, then in double. NaN
 * and infinity spread into the sums, and so do squares above the largest float. The result has the same bits on every
 * instruction set. Several threads may call it at the same time.
 * @since 0.2.0 */
QOBS_API int qobs_measure_error(const qobs_tensor *value, const qobs_tensor *other, double *squared_error,
                                double *energy, qobs_error *error);

/** @} */

/** @defgroup range Range finders
 * Functions that find the range to quantize in a histogram, which may come from any source.
 * @{ */

/** Arguments of the range finders. */
typedef struct qobs_range_args {
    size_t struct_size;           /**< sizeof(qobs_range_args) */
    const qobs_config *config;    /**< a preset of the family that has the method, and its number format */
    const qobs_tensor *histogram; /**< 1-dimensional counts, F32, F64, I32 or I64 */
    const qobs_tensor *bin_edges; /**< F32, one element more than histogram */
    double percentile;            /**< qobs_range_by_percentile: 0 to 100 */
    int64_t stride;               /**< qobs_range_by_mse and _entropy: bins between candidates */
    int64_t start_bin;            /**< qobs_range_by_mse and _entropy: the first candidate */
    const qobs_runtime *runtime;  /**< NULL: the defaults; the executor is not used */
} qobs_range_args;

/** The result of a range finder. qobs fills the structure as far as struct_size goes. */
typedef struct qobs_range {
    size_t struct_size; /**< sizeof(qobs_range) */
    float min;          /**< the range */
    float max;          /**< the range */
    int64_t first_bin;  /**< first bin of the range */
    int64_t last_bin;   /**< last bin of the range, included */
    double score;       /**< percent of the counts within the range; mean squared error; squared error; divergence */
} qobs_range;

/** Finds the range that holds `percentile` percent. score is the share of the counts in the bins of the range, in
 * percent. The range of modelopt.* is -amax to amax, or 0 to amax if unsigned.
 * quark.* reproduces get_min_max_by_percentile. If symmetric, the range is 0 to the left edge of the first bin whose
 * cumulative share reaches the percentile. If asymmetric, it is the smallest range of bins with at most half of the
 * remaining share on each side. Upstream documents that rule but computes another range;
 * quark.PerTensorPercentileObserver reproduces what it computes.
 * modelopt.* reproduces compute_amax(percentile) of Model-Optimizer.
 * @since 0.2.0 */
QOBS_API int qobs_range_by_percentile(const qobs_range_args *args, qobs_range *range, qobs_error *error);

/** Finds the range with the smallest mean squared error of the quantized bin centres, which is score. Candidates end at
 * the centres of bins start_bin, start_bin + stride, ...
 * quark.* reproduces get_min_max_by_mse; a start_bin beyond the last bin means the last bin. modelopt.* reproduces the
 * documented compute_amax(mse) of Model-Optimizer; upstream passes its arguments in the wrong order and returns
 * start_bin.
 * @since 0.2.0 */
QOBS_API int qobs_range_by_mse(const qobs_range_args *args, qobs_range *range, qobs_error *error);

/** Finds the range with the smallest squared error if elements are spread evenly over their bins; score is that error.
 * It clips from either side, 1e-5 of the elements at a time, until the error increases. Only for torch.* presets
 * (setting dtype). Reproduces _non_linear_param_search of HistogramObserver, which computes in float32 and double.
 * Only the first and the last edge are read, the others may be anything; counts are rounded to float32. Sums have the
 * order of torch.sum for vectors of 8. If max - min overflows float32, the result is the full range; upstream has no
 * result.
 * @since 0.2.0 */
QOBS_API int qobs_range_by_l2_norm(const qobs_range_args *args, qobs_range *range, qobs_error *error);

/** Finds the range with the smallest Kullback-Leibler divergence, which is score. Candidates hold the first start_bin,
 * start_bin + stride, ... bins. Only for modelopt.* presets with integers of 2 to 16 bits.
 * Reproduces compute_amax(entropy) of Model-Optimizer. Upstream changes bin 0 of a numpy histogram; here the
 * histogram is not modified.
 * @since 0.2.0 */
QOBS_API int qobs_range_by_entropy(const qobs_range_args *args, qobs_range *range, qobs_error *error);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
