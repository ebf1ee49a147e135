/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ONNX Runtime: the limits of its types (ONNX_INT_TYPE_RANGE and others in quantization/quant_utils.py). */
#include "config/stages.h"

static const struct {
    int min, max;         /* of the type */
    int symmetric;        /* its smallest number if the range is symmetric */
    int reduced, highest; /* with one bit less */
    qobs_dtype zero_point;
} types[ORT_TYPES] = {
    [ORT_QINT8] = {-128, 127, -127, -64, 64, QOBS_I8},
    [ORT_QUINT8] = {0, 255, 0, 0, 127, QOBS_U8},
    [ORT_QINT16] = {-32768, 32767, -32767, -16384, 16384, QOBS_I16},
    [ORT_QUINT16] = {0, 65535, 0, 0, 32767, QOBS_I32},
    [ORT_QINT4] = {-8, 7, -8, -4, 3, QOBS_I8},
    [ORT_QUINT4] = {0, 15, 0, 0, 7, QOBS_U8},
};

const struct formula_ops *qobs_ort_formula(const qobs_config *config, struct formula_params *p)
{
    const int type = config->activation_type;
    const bool reduced = config->reduce_range, symmetric = config->activation_symmetric;
    p->mapping = symmetric ? MAPPING_SYMMETRIC : MAPPING_AFFINE;
    p->quant_min = reduced ? types[type].reduced : symmetric ? types[type].symmetric : types[type].min;
    p->quant_max = reduced ? types[type].highest : types[type].max;
    p->ort.zero_point_dtype = types[type].zero_point;
    p->ort.has_min_real_range = config->has_min_real_range;
    p->ort.restricted =
        config->has_restricted_asymmetric && config->restricted_asymmetric && type == ORT_QUINT8 && !symmetric;
    p->ort.min_real_range = config->min_real_range;
    if (!config->preset->range->found_moments)
        return &qobs_formula_ort;
    p->ort.zero_point_dtype = QOBS_F8_E4M3;
    return &qobs_formula_ort_float8;
}
