/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AMD Quark's formulas (quark/torch/quantization/observer/observer.py and utils.py, 2026): ranges to scale and zero
 * point, by dtype and by scale format. */
#ifndef QOBS_FORMULA_QUARK_H
#define QOBS_FORMULA_QUARK_H

#include "formula/formula.h"

/* What Quark knows about a dtype. */
struct quark_number {
    double quant_min, quant_max;
    int mantissa_bits, emax; /* for e8m0 scales of such elements; mantissa_bits 0: Quark has none */
};
const struct quark_number *qobs_quark_number(int quark_dtype);

int qobs_quark_check(const qobs_config *config, qobs_error *error);

/* The dtype scale_type names, or `otherwise`. */
qobs_dtype qobs_quark_scale_dtype(const qobs_config *config, qobs_dtype otherwise);

/* The observers of a range, UniformScalingObserver: integers, fp8 and fp4. */
void qobs_quark_dtypes(const qobs_config *config, const struct range_view *ranges, qobs_dtype *scale,
                       qobs_dtype *zero_point);
int qobs_quark_qparams(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point,
                       qobs_error *error);

/* The same for fp8 and fp4; MX blocks, by scale_format; and BFP blocks. */
void qobs_quark_amax_dtypes(const qobs_config *config, const struct range_view *ranges, qobs_dtype *scale,
                            qobs_dtype *zero_point);
int qobs_quark_amax_qparams(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point,
                            qobs_error *error);

/* The exponent at which PerBlockMXDiffsObserver begins: ceil(log2(amax)) - emax of the elements, the logarithm rounded to `dtype`. */
double qobs_quark_ceil_exponent(const qobs_config *config, qobs_dtype dtype, double amax);

/* As qobs_update_absmax, with Quark's doubling for BFP: the magnitude of a block whose elements do not fit its scale. */
void qobs_quark_update_bfp(const qobs_config *config, qobs_dtype dtype, size_t n, void *min, void *max, const void *lo,
                           const void *hi, bool fresh);

/* Powers of two, for the ranges of one batch. */
void qobs_quark_power_of_2_dtypes(const qobs_config *config, const struct range_view *ranges, qobs_dtype *scale,
                                  qobs_dtype *zero_point);
int qobs_quark_power_of_2_qparams(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point,
                                  qobs_error *error);

/* The shape of scale in the answer without data. */
struct shape qobs_quark_shape_without_data(const qobs_config *config);

#endif
