/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From ranges to scale and zero point. One implementation per upstream's way of computing. */
#ifndef QOBS_FORMULA_H
#define QOBS_FORMULA_H

#include "config/config.h"
#include "plan/plan.h"

/* How upstream holds ranges, which decides the types its arithmetic promotes to. */
enum rank {
    RANK_TENSOR,  /* in a tensor with dimensions */
    RANK_SCALAR, /* each in a 0-dimensional tensor of its own */
    RANK_EMPTY  /* nothing has been observed: one range from infinity to -infinity, 0-dimensional */
};

/* n ranges of one dtype. */
struct range_view {
    qobs_dtype dtype;
    size_t n;
    enum rank rank;
    const void *min, *max;
    const float *global_scale; /* NULL: there is none */
};

/* How upstream's observer would hold ranges that a caller gives without one. */
enum rank qobs_default_rank(const qobs_config *config);

/* The range of an observer without data. */
struct range_view qobs_no_ranges(void);

/* Does the preset have scale and zero point at all? */
bool qobs_has_formula(const qobs_config *config);

/* The dtypes of the results for such ranges, of which only the kind is looked at. */
void qobs_formula_dtypes(const qobs_config *config, const struct range_view *ranges, qobs_dtype *scale,
                            qobs_dtype *zero_point);

/* scale and zero_point have the dtypes named above and may each be NULL. QOBS_ERROR_NO_RESULT where upstream raises,
 * QOBS_ERROR_NO_DATA where it has no answer without data. */
int qobs_formula(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point,
                    qobs_error *error);

/* The shape of scale in upstream's answer without data. */
struct shape qobs_formula_shape_without_data(const qobs_config *config);

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
