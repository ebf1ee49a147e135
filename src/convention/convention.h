/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From ranges to scale and zero point. One implementation per upstream's way of computing. */
#ifndef QOBS_CONVENTION_H
#define QOBS_CONVENTION_H

#include "config.h"

/* The dtypes of the results for ranges of `dtype`, without a global scale; `observed` says whether there are data at all (torch's answer without data
 * has other dtypes). */
void qobs_convention_dtypes(const qobs_config *config, qobs_dtype dtype, bool observed, qobs_dtype *scale,
                            qobs_dtype *zero_point);

/* n ranges of one dtype. */
struct range_view {
    qobs_dtype dtype;
    size_t n;
    bool scalar; /* upstream holds them in a 0-dimensional tensor, which changes its type promotion */
    const void *min, *max;
    const float *global_scale; /* NULL: there is none */
};

/* scale and zero_point have the dtypes named above (scale F32 with a global scale) and may each be NULL.
 * QOBS_ERROR_NO_RESULT where upstream raises. */
int qobs_convention(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point,
                    qobs_error *error);

void qobs_compressed_tensors_dtypes(const qobs_config *config, qobs_dtype dtype, qobs_dtype *scale, qobs_dtype *zero_point);
void qobs_compressed_tensors_qparams(const qobs_config *config, const struct range_view *ranges, void *scale,
                                     void *zero_point);
/* The largest magnitude of all ranges, and the global scale for it where they are of `dtype`. */
double qobs_compressed_tensors_amax(const struct range_view *ranges);
float qobs_compressed_tensors_global_scale(const qobs_config *config, qobs_dtype dtype, double amax);

/* The integers of a torch dtype, custom limits and reduce_range included. */
void qobs_torch_quant_range(const qobs_config *config, int64_t *quant_min, int64_t *quant_max);
qobs_dtype qobs_torch_zero_point_dtype(const qobs_config *config, bool observed);
int qobs_torch_check(const qobs_config *config, qobs_error *error);
int qobs_torch_qparams(const qobs_config *config, const struct range_view *ranges, float *scale, void *zero_point,
                       qobs_error *error);

#endif
