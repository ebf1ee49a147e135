/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Dtype and shape of a result. */
#include "observer/result.h"

#include <string.h>

bool qobs_found_is_list(const qobs_observer *o)
{
    return o->config.preset->statistic == STATISTIC_PERCENTILE && qobs_has_ranges(o) && qobs_histogram_is_empty(o);
}

/* What is read of the ranges as one result: all, or the part that upstream keeps under a name. */
static struct shape range_shape(const qobs_observer *o)
{
    if (o->layout.keying == KEYING_GROUPS)
        return (struct shape){.ndim = 2, .extent = {o->layout.range.extent[0], 1}};
    return o->layout.keying == KEYING_BLOCKS ? (struct shape){.ndim = 2, .extent = {1, 1}} : o->layout.range;
}

bool qobs_min_is_integer(const qobs_observer *o)
{
    return o->config.preset->statistic == STATISTIC_SQUARED_ERROR ||
           (o->config.preset->statistic == STATISTIC_PERCENTILE && o->config.symmetric && !qobs_found_is_list(o));
}

static struct shape scale_shape(const qobs_observer *o)
{
    if (o->config.preset->statistic == STATISTIC_HISTOGRAM_QUARK)
        return o->stages.formula.params.shape_without_data;
    if (qobs_found_is_list(o) || o->config.preset->formula == FORMULA_QUARK_TORCH)
        return (struct shape){.ndim = 1, .extent = {1}};
    return o->layout.scale;
}

void qobs_result_describe(const qobs_observer *o, struct item item, qobs_result *result)
{
    struct shape shape = {.ndim = 1, .extent = {1}};
    qobs_dtype scale, zero_point, dtype = o->layout.dtype;
    qobs_qparam_dtypes(o, &o->layout, qobs_has_ranges(o), &scale, &zero_point);
    switch (item.which) {
    case RESULT_MIN:
    case RESULT_MAX:
        shape = qobs_found_is_list(o) ? shape : range_shape(o);
        dtype = item.which == RESULT_MIN && qobs_finds_range(o) && qobs_min_is_integer(o) ? QOBS_I64 : dtype;
        break;
    case RESULT_AMAX:
        shape = o->layout.range;
        break;
    case RESULT_INIT_SCALE:
        dtype = QOBS_F32;
        shape = o->layout.range;
        break;
    case RESULT_GLOBAL_MIN:
    case RESULT_GLOBAL_MAX:
        dtype = o->whole.dtype;
        break;
    case RESULT_GLOBAL_SCALE:
        dtype = scale;
        break;
    case RESULT_SCALE:
    case RESULT_ZERO_POINT:
        dtype = item.which == RESULT_SCALE ? scale : zero_point;
        shape = scale_shape(o);
        break;
    case RESULT_BEST_STEP:
    case RESULT_ERRORS:
    case RESULT_ERRORS_BEFORE:
        dtype = item.which == RESULT_BEST_STEP ? QOBS_I32 : QOBS_F64;
        shape = o->layout.range;
        break;
    case RESULT_STOP_STEP:
        dtype = QOBS_I32;
        break;
    case RESULT_CALIB_HIST:
    case RESULT_CALIB_BIN_EDGES:
        shape.extent[0] = (int64_t)o->kept.histogram.bins + (item.which == RESULT_CALIB_BIN_EDGES);
        break;
    case RESULT_HISTOGRAM: /* of every qparam */
        shape = o->layout.range;
        shape.extent[shape.ndim++] = (int64_t)o->kept.histogram.bins;
        break;
    case RESULT_NEW_MIN:
    case RESULT_NEW_MAX:
        shape = o->layout.range;
        break;
    case RESULT_IMATRIX_SUM:
        dtype = QOBS_F32;
        shape.extent[0] = o->importance.columns;
        break;
    default:
        dtype = QOBS_I64;
        break;
    }
    const size_t struct_size = result->struct_size;
    *result = (qobs_result){.struct_size = struct_size, .dtype = dtype, .ndim = shape.ndim};
    qobs_result_name(o, item, result->name);
    memcpy(result->shape, shape.extent, sizeof result->shape);
    result->size = qobs_dtype_size(dtype);
    for (int d = 0; d < shape.ndim; d++)
        result->size *= (size_t)shape.extent[d];
}
