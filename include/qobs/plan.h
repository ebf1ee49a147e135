/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/** @file
 * The elements that share a scale, for callers that quantize themselves. */
#ifndef QOBS_QOBS_PLAN_H
#define QOBS_QOBS_PLAN_H

#include "qobs.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup plan Granularity
 * @{ */

/** A granularity applied to a tensor shape: it determines the elements that share a scale. The tensor is viewed as
 * (num_observations, *qparam_shape, group_size) without a copy. Reproduces flatten_for_calibration of
 * llm-compressor, and the reshaping in forward of the other observers. */
typedef struct qobs_plan qobs_plan;

#define QOBS_PADDING INT64_MIN /**< offset of a run of zeros that is not in memory */

/** A run of elements that are consecutive in the flattened value and belong to one qparam. */
typedef struct qobs_run {
    int64_t offset; /**< bytes from the tensor's data to the first element; QOBS_PADDING: zeros of a padded block */
    int64_t stride; /**< bytes between elements */
    int64_t length; /**< number of elements */
    int64_t qparam; /**< index in the flattened qparam_shape */
} qobs_run;

/** Creates the plan for tensors with the shape and strides of `value`, whose data is not read. The caller destroys
 * it. runtime may be NULL.
 * g_idx: I32 or I64, one entry for each column; only for weights with strategy group or tensor_group, otherwise
 * NULL. A g_idx that contains -1 is ignored, except in version 2025-10.
 * Fails if the settings are invalid, if a size is not divisible, or if upstream rejects the combination of base name
 * and strategy. modelopt.* presets also reject an axis that value does not have; upstream does not.
 * @since 0.1.0 */
QOBS_API int qobs_plan_create(qobs_plan **plan, const qobs_config *config, const qobs_tensor *value,
                              const qobs_tensor *g_idx, const qobs_runtime *runtime, qobs_error *error);
/** Does nothing if plan is NULL.
 * @since 0.1.0 */
QOBS_API void qobs_plan_destroy(qobs_plan *plan);

#define QOBS_PLAN_MAX_NDIM (QOBS_MAX_NDIM + 3) /**< largest number of dimensions of a flattened shape */

/** Writes the flattened shape to `shape` of `size` bytes, QOBS_PLAN_MAX_NDIM entries at most, and returns its number of
 * dimensions; 0 if a pointer is NULL or the array is too small. The first and the last dimension are reduced; the
 * others are the shape of scale.
 * @since 0.2.0 */
QOBS_API int qobs_plan_shape(const qobs_plan *plan, int64_t *shape, size_t size);

/** Returns the number of runs.
 * @since 0.1.0 */
QOBS_API int64_t qobs_plan_run_count(const qobs_plan *plan);
/** Describes run `index`, in the order of the flattened value.
 * @since 0.1.0 */
QOBS_API int qobs_plan_run(const qobs_plan *plan, int64_t index, qobs_run *run, qobs_error *error);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
