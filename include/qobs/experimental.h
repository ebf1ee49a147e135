/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/** @file
 * Single steps of upstream's classes, for those who compare with them. Nothing else of qobs uses these functions. They
 * may change or go in any minor release, also after 1.0. The other headers are the stable core. */
#ifndef QOBS_QOBS_EXPERIMENTAL_H
#define QOBS_QOBS_EXPERIMENTAL_H

#include "plan.h"
#include "stateless.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup experimental Experimental
 * @{ */

/** Writes the flattened value in C order to `out`, for checks. `size` is the product of the flattened shape times the
 * element size, in bytes. Ragged groups, which have different sizes, follow each other without gaps.
 * @since 0.1.0 */
QOBS_API int qobs_plan_copy(const qobs_plan *plan, const qobs_tensor *value, void *out, size_t size, qobs_error *error);

/** Arrays for a range. */
typedef struct qobs_range_buffers {
    size_t struct_size; /**< sizeof(qobs_range_buffers) */
    void *min;          /**< receives the minima */
    void *max;          /**< receives the maxima */
    size_t size;        /**< bytes of min, and of max */
} qobs_range_buffers;

/** Observes `value` and returns the ranges.
 * This and the next three functions are the steps of qobs_observer_observe. Array sizes are in bytes, for the
 * complete array, and are checked before anything changes. If the new ranges give no scale (NO_RESULT), the batch
 * has been observed nevertheless. Empty tensors change nothing; the functions then return the existing results.
 * min and max have value's dtype (torch presets: F32). Reproduces get_min_max of llm-compressor.
 * @since 0.2.0 */
QOBS_API int qobs_observer_update_min_max(qobs_observer *observer, const qobs_tensor *value, const qobs_tensor *g_idx,
                                          const qobs_range_buffers *out, qobs_error *error);

/** The same for the range of the complete tensor (llmc versions 2025-09 and 2025-10). That range has its own average
 * and gives the global scale. qobs_observer_observe does both. Reproduces get_global_min_max of llm-compressor.
 * @since 0.2.0 */
QOBS_API int qobs_observer_update_global_min_max(qobs_observer *observer, const qobs_tensor *value,
                                                 const qobs_range_buffers *out, qobs_error *error);

/** Observes `value` and returns scale and zero point. Reproduces get_qparams of llm-compressor's version 2025-09.
 * @since 0.2.0 */
QOBS_API int qobs_observer_update_qparams(qobs_observer *observer, const qobs_tensor *value, const qobs_tensor *g_idx,
                                          const qobs_qparam_buffers *out, qobs_error *error);

/** The same with another granularity: the `count` dimensions in `dim` are kept and all others reduced, for every
 * strategy (llmc version 2025-09). Negative dimensions count from the end. If no dimension or every dimension is
 * kept, there is one range. Reproduces get_qparams_along_dim.
 * @since 0.2.0 */
QOBS_API int qobs_observer_update_qparams_along_dim(qobs_observer *observer, const qobs_tensor *value, const int *dim,
                                                    size_t count, const qobs_qparam_buffers *out, qobs_error *error);

/** Searches as qobs_search the range of the complete tensor, one element each. Every candidate has its own global scale
 * (version 2025-10, strategy tensor_group). Only config, value, min, max, size and runtime are used; the others are
 * NULL or 0. Reproduces get_current_global_min_max with optimize_global_scale of the mse observers of llm-compressor.
 * @since 0.2.0 */
QOBS_API int qobs_global_search(const qobs_search_args *args, qobs_error *error);

/** Arguments of qobs_calibrate_weights. */
typedef struct qobs_calibrate_args {
    size_t struct_size;          /**< sizeof(qobs_calibrate_args) */
    const qobs_config *config;   /**< modelopt.HistogramCalibrator: axis, method, num_bins and those of the method */
    const qobs_tensor *value;    /**< F32, BF16, F16 or F64, all elements finite as floats */
    float *amax;                 /**< receives one number for each index of the kept axes, in C order */
    size_t amax_size;            /**< bytes of amax */
    const qobs_runtime *runtime; /**< NULL: the defaults */
} qobs_calibrate_args;

/** Finds the amax of a weight tensor, or of each of its channels (setting axis), in a histogram of magnitudes from 0 to
 * the largest one. `method` is percentile or mse; entropy is an error. Magnitudes are floats; bins are those of
 * numpy.histogram. amax is in units of value. The call uses 208 bytes of memory for each bin and thread, at most 3,328
 * for each bin. Several threads may call it at the same time. Fails with NO_DATA if there are no elements.
 * Reproduces calibrate_weights of Model-Optimizer for F32; its method max is qobs_minmax. Upstream's mse passes its
 * arguments in the wrong order, as in compute_amax.
 * @since 0.2.0 */
QOBS_API int qobs_calibrate_weights(const qobs_calibrate_args *args, qobs_error *error);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
