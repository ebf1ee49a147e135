/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/** @file
 * The prepared quantizer: a configuration that is checked and resolved once, and quantizes many matrices. */
#ifndef QOBS_QOBS_QUANTIZER_H
#define QOBS_QOBS_QUANTIZER_H

#include "format.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup quantizer Prepared quantizer
 * Quantizes rows of a matrix of one dtype and number of columns. The number of rows may differ from call to call.
 *  - Static: the caller gives scales and zero points. The result is that of qobs_quantize or qobs_fake_quantize.
 *  - Dynamic: scales and zero points are those of the matrix itself. The result is that of qobs_qparams_from_tensor and
 * then qobs_quantize, bit for bit (vllm presets: if int32 holds the zero points), and the matrix is read from memory
 * once. The granularity is that of the configuration for a tensor (rows, columns): strategy channel has a scale for
 * each row (a token, if rows are tokens), group one for each group of columns in a row, block one for each block,
 * tensor one for all rows. Packed codes are those of qobs_quantize with packed. A quantizer does not change after its
 * creation. Any number of threads may run it at the same time, and the results do not depend on how rows are divided
 * into calls, if no qparam has rows of two calls.
 * @{ */

/** A prepared quantizer. */
typedef struct qobs_quantizer qobs_quantizer;

/** Arguments of qobs_quantizer_create. */
typedef struct qobs_quantizer_args {
    size_t struct_size;          /**< sizeof(qobs_quantizer_args) */
    const qobs_config *config;   /**< granularity and format; it is copied. Codes: an llmc, qobs, vllm or ggml
                                      preset */
    const qobs_format *format;   /**< static: as in qobs_quantize; NULL: the format of config */
    qobs_dtype dtype;            /**< of the matrix: F32, BF16, F16 or F64 */
    int64_t columns;             /**< of the matrix, 1 to 2^40 */
    int dynamic;                 /**< 1: qobs_quantizer_run finds the scales; 0: they are given. 1 needs one_tensor of
                                      qobs_config_needs, which llmc.*minmax, vllm.* and ggml.*
                                      have */
    int packed;                  /**< 1: two codes of 4 bits in a byte; columns is a multiple of 8, groups are even */
    int dequantized;             /**< 1: the output has the numbers of qobs_fake_quantize, in dtype; 0: codes */
    qobs_dtype scale_dtype;      /**< static: of the scales, F32 or dtype; 0: that of qobs_config_qparam_dtypes, F32
                                      with a global scale */
    qobs_dtype zero_point_dtype; /**< static: of the zero points; 0: that of qobs_config_qparam_dtypes */
    const qobs_runtime *runtime; /**< NULL: the defaults. Its executor divides large matrices, and must accept calls
                                      from all threads that run the quantizer. Only the creation allocates */
} qobs_quantizer_args;

/** Creates a quantizer with the instruction set that is active now. The caller destroys it.
 * @since 0.2.0 */
QOBS_API int qobs_quantizer_create(qobs_quantizer **quantizer, const qobs_quantizer_args *args, qobs_error *error);

/** Returns the bytes that qobs_quantizer_create_in needs. They do not depend on the arguments of a quantizer.
 * @since 0.2.0 */
QOBS_API size_t qobs_quantizer_size(void);

/** Creates a quantizer in `memory`, at any address, of `size` bytes, and allocates nothing. The memory must not move
 * until the quantizer is destroyed, and belongs to the caller again afterwards.
 * @since 0.2.0 */
QOBS_API int qobs_quantizer_create_in(qobs_quantizer **quantizer, void *memory, size_t size,
                                      const qobs_quantizer_args *args, qobs_error *error);

/** Does nothing if quantizer is NULL.
 * @since 0.2.0 */
QOBS_API void qobs_quantizer_destroy(qobs_quantizer *quantizer);

/** Sizes and shapes of a run. qobs fills the structure as far as struct_size goes. */
typedef struct qobs_quantized_layout {
    size_t struct_size;          /**< sizeof(qobs_quantized_layout) */
    size_t row_size;             /**< bytes of the codes or numbers of a row */
    size_t codes_size;           /**< bytes of all rows without gaps */
    size_t count;                /**< number of scales; their shape is (qparam_rows, qparam_columns). 0: ggml.*, whose
                                      blocks hold them */
    int64_t qparam_rows;         /**< rows of scales */
    int64_t qparam_columns;      /**< columns of scales */
    qobs_dtype scale_dtype;      /**< dtype of scale */
    qobs_dtype zero_point_dtype; /**< dtype of zero_point */
    size_t scale_size;           /**< bytes of scale */
    size_t zero_point_size;      /**< bytes of zero_point */
    bool has_zero_point;         /**< dynamic: zero points must be received, too; else they may be NULL */
    bool has_global_scale;       /**< the scales are divided by a global scale, which must be given */
    qobs_dtype codes_dtype;      /**< of codes: I8 for integers, F8_E4M3, U8 for fp4, fp6, packed codes and blocks;
                                      dequantized: that of the matrix */
} qobs_quantized_layout;

/** Describes a run of `rows` rows.
 * @since 0.2.0 */
QOBS_API int qobs_quantizer_layout(const qobs_quantizer *quantizer, int64_t rows, qobs_quantized_layout *layout,
                                   qobs_error *error);

/** Arguments of qobs_quantizer_run. Arrays other than value and codes are aligned for their dtype. */
typedef struct qobs_quantizer_run_args {
    size_t struct_size;        /**< sizeof(qobs_quantizer_run_args) */
    int64_t rows;              /**< of the matrix; 0: nothing is done */
    const void *value;         /**< the first row; its columns are contiguous */
    int64_t value_stride;      /**< bytes from row to row, at least those of a row; 0: no gaps */
    void *codes;               /**< receives codes, or numbers if dequantized; must not overlap value. Dynamic: NULL,
                                    if only scales are wanted */
    int64_t codes_stride;      /**< bytes from row to row, at least row_size of the layout; 0: no gaps */
    size_t codes_size;         /**< bytes of codes, at least those that the rows span */
    void *scale;               /**< scales in C order without gaps; dynamic: receives them, static: only read */
    size_t scale_size;         /**< bytes of scale */
    void *zero_point;          /**< as scale; NULL: none, or not wanted. Dynamic: not NULL if has_zero_point */
    size_t zero_point_size;    /**< bytes of zero_point; 0 if it is NULL */
    const float *global_scale; /**< the global scale, finite and above 0, if the layout has one; else NULL */
    double *squared_error;     /**< codes of llmc and qobs presets: receives what qobs_quantize writes there; NULL: not
                                    wanted */
    double *energy;            /**< as squared_error */
    qobs_counts *counts;       /**< dynamic: receives elements, nan and inf of the matrix; NULL: not wanted */
} qobs_quantizer_run_args;

/** Quantizes a matrix. It allocates nothing and takes no lock.
 * Dynamic: NaN and infinity are treated as the setting nonfinite says; a message of NONFINITE names the first row and
 * column. After a failure the matrix is unchanged, and the outputs may have been overwritten. Codes of symmetric
 * configurations are those without zero points.
 * @since 0.2.0 */
QOBS_API int qobs_quantizer_run(const qobs_quantizer *quantizer, const qobs_quantizer_run_args *args,
                                qobs_error *error);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
