/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/** @file
 * Rows of numbers as blocks of the types of GGUF files, and back. */
#ifndef QOBS_QOBS_GGUF_H
#define QOBS_QOBS_GGUF_H

#include "qobs.h"
#include "stateless.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup gguf Types of GGUF files
 * The bytes are those of ggml-base as its own CMake builds it for x86-64, where no product and sum are fused, on every
 * instruction set and for any number of threads. Experimental: it may change before 1.0.
 * @{ */

/** Returns the name of a type, such as "Q4_K": first those that qobs_gguf_quantize makes, then those that it refuses.
 * NULL: there are not so many.
 * @since 0.3.0 */
QOBS_API const char *qobs_gguf_type_name(size_t index);

/** A type. */
typedef struct qobs_gguf_type {
    size_t struct_size;     /**< sizeof(qobs_gguf_type) */
    const char *name;       /**< as qobs_gguf_type_name returns it */
    int number;             /**< of the type in files */
    int uses_importance;    /**< 1: importance changes the bytes of the search "ggml" */
    int64_t block_elements; /**< of a row that go together: columns are a multiple */
    size_t block_size;      /**< bytes of a block */
    int made;               /**< 1: qobs_gguf_quantize makes it; 0: it is refused */
    int rounds;             /**< 1: qobs_gguf_quantize takes a Hessian, which rounds its codes */
} qobs_gguf_type;

/** Describes the type of that name, in any case of letters. qobs fills the structure as far as struct_size goes.
 * @since 0.3.0 */
QOBS_API int qobs_gguf_describe_type(const char *name, qobs_gguf_type *type, qobs_error *error);

/** Arguments of qobs_gguf_quantize. Rows and blocks follow each other without gaps. */
typedef struct qobs_gguf_quantize_args {
    size_t struct_size;          /**< sizeof(qobs_gguf_quantize_args) */
    const char *type;            /**< name of the type */
    qobs_dtype dtype;            /**< of value: F32, BF16 or F16 */
    int64_t rows;                /**< 0: nothing is done */
    int64_t columns;             /**< a multiple of the type's block_elements */
    const void *value;           /**< (rows, columns), finite */
    const float *importance;     /**< a number for each column, finite and not below 0, such as the mean square of its
                                      activations; NULL: none. The search "ggml" ignores it for types that do not
                                      use it */
    void *out;                   /**< receives the blocks; must not overlap value */
    size_t out_size;             /**< bytes of out: rows * columns / block_elements * block_size */
    const qobs_runtime *runtime; /**< NULL: the defaults. Its executor divides the rows */
    const char *search;          /**< "ggml" or NULL: the bytes of ggml. "optimal": blocks of less error in their place,
                                      see qobs_gguf_quantize */
    /** H = sum of x x^T over the inputs x of the matrix, by which codes are rounded; NULL: they are not. F32 or F64 of
     * shape (blocks, n, n), as the result hessian_sum of qobs.local_hessian; n: all columns, or blocks of them. */
    const qobs_tensor *hessian;
    int64_t hessian_count;     /**< tokens, by which H is divided; 0 and 1: not known, and H counts as it is */
    int passes;                /**< most passes over the columns, to 100; 0: 4 */
    qobs_round_report *report; /**< receives what the rounding found, with hessian; NULL: not wanted */
} qobs_gguf_quantize_args;

/** Makes blocks of a matrix. The search "optimal" lowers the sum of importance * (element - number)^2 of each block,
 * without importance the sum of squares; the sum of no block is above that of ggml's. Blocks with one scale for a run
 * (Q4_0, Q5_0, Q8_0, IQ4_NL, NVFP4, MXFP4, TQ1_0, TQ2_0, Q1_0, Q2_0) get the best of all scales that can be stored.
 * Q6_K, Q3_K and IQ4_XS get the best integers for scales, and Q4_K, Q5_K and Q2_K the best pairs of integers, for the
 * F16 scales of the block, which are fitted in rounds. Q4_1 and Q5_1 are fitted from several ranges. Sums in float
 * decide, so that a sum may be larger than the least by 2^-16 of it. Importance that is 0 in a whole block counts as 1
 * there. Copies (F32, F16, BF16) have nothing to search.
 * With a Hessian the scales and minima of the search stay, and each code becomes one that makes the error of the
 * outputs smaller, as qobs_round_codes does; the report counts the codes of the search as the nearest. Entries of H off
 * its diagonal are divided by 1 + 2 sqrt(n / hessian_count): the fewer the tokens, the more each column counts alone.
 * The errors of the report are those of H itself. Types of trits and signs (TQ1_0, TQ2_0, Q1_0, Q2_0) and copies fail
 * with UNSUPPORTED. It allocates 5 bytes for each element of 1024 rows, and what qobs_round_codes does. Without a
 * Hessian it allocates nothing. Types whose grids ggml searches (IQ1, IQ2, IQ3) fail with UNSUPPORTED. NaN and infinity
 * in value and scales of ggml beyond F16 fail with NONFINITE, as upstream refuses these. The message names the first
 * row.
 * Reproduces ggml_quantize_chunk (ggml 0.21.0) with the search "ggml".
 * @since 0.3.0 */
QOBS_API int qobs_gguf_quantize(const qobs_gguf_quantize_args *args, qobs_error *error);

/** Arguments of qobs_gguf_dequantize. */
typedef struct qobs_gguf_dequantize_args {
    size_t struct_size;          /**< sizeof(qobs_gguf_dequantize_args) */
    const char *type;            /**< name of the type */
    int64_t rows;                /**< 0: nothing is done */
    int64_t columns;             /**< a multiple of the type's block_elements */
    const void *blocks;          /**< of all rows, without gaps */
    size_t blocks_size;          /**< bytes of blocks: rows * columns / block_elements * block_size */
    float *out;                  /**< receives (rows, columns); must not overlap blocks */
    size_t out_size;             /**< bytes of out: rows * columns * 4 */
    const qobs_runtime *runtime; /**< NULL: the defaults. Its executor divides the rows */
} qobs_gguf_dequantize_args;

/** The numbers that blocks stand for, whatever is in them. It allocates nothing.
 * Reproduces dequantize_row_* (ggml 0.21.0).
 * @since 0.3.0 */
QOBS_API int qobs_gguf_dequantize(const qobs_gguf_dequantize_args *args, qobs_error *error);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
