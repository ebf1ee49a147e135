/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scale and zero point, and the global scale they come with. */
#include "observer/result.h"

#include "base/error.h"
#include "base/fpenv.h"
#include "observer/post_search.h"
#include "measure/accumulators.h"

bool qobs_has_global_scale(const qobs_observer *o)
{
    return is_llmc(o) && qobs_config_strategy(&o->config) == STRATEGY_TENSOR_GROUP;
}

bool qobs_has_whole(const qobs_config *config)
{
    return config->preset->family == FAMILY_LLMC && config->version != VERSION_CURRENT &&
           qobs_config_strategy(config) == STRATEGY_TENSOR_GROUP;
}

struct range_view qobs_view_ranges(const qobs_observer *o)
{
    if (!qobs_has_ranges(o))
        return qobs_no_ranges();
    return (struct range_view){
        .dtype = o->layout.dtype,
        .n = o->layout.qparams,
        .rank = o->layout.range.ndim == 0 ? RANK_SCALAR : RANK_TENSOR,
        .min = o->kept.state.min,
        .max = o->kept.state.max,
    };
}

float qobs_read_global_scale(const qobs_observer *o)
{
    struct range_view ranges = qobs_view_ranges(o);
    if (qobs_has_whole(&o->config)) {
        ranges.min = o->whole.min;
        ranges.max = o->whole.max;
        ranges.n = 1;
    }
    return o->stages.formula.ops->global_scale(o->layout.dtype, o->fused ? o->fused_amax : qobs_amax_of_ranges(&ranges));
}

bool qobs_global_scale_is_known(const qobs_observer *o)
{
    return o->fused || (qobs_has_whole(&o->config) ? o->whole.dtype != 0 : qobs_has_ranges(o));
}

int qobs_compute_qparams(const qobs_observer *o, void *scale, void *zero_point, qobs_error *error)
{
    if (o->kept.histogram.bins > 0 && (scale || zero_point))
        return qobs_read_found(o, NULL, NULL, scale, zero_point, error);
    struct range_view ranges = qobs_view_ranges(o);
    const bool global = qobs_has_ranges(o) && qobs_has_global_scale(o);
    if (global && !qobs_global_scale_is_known(o))
        return qobs_fail(error, QOBS_ERROR_NO_DATA,
                         "scale: needs the global scale, for which no range of the whole has been observed");
    const fp_mode mode = fp_enter();
    const float g = global ? qobs_read_global_scale(o) : 1;
    ranges.global_scale = global ? &g : NULL;
    int status = qobs_formula_qparams(&o->stages.formula, &ranges, scale, zero_point, error);
    const struct search_state state = qobs_search_state(o);
    if (status == QOBS_OK && o->stages.range.ops->scale)
        status = o->stages.range.ops->scale(&state, o->layout.dtype, scale, error);
    fp_leave(mode);
    if (status == QOBS_OK && o->kept.mode_count.candidates > 0)
        qobs_mode_read(&o->kept.mode_count, scale, zero_point);
    return status;
}

void qobs_qparam_dtypes(const qobs_observer *o, const struct layout *layout, bool observed, qobs_dtype *scale,
                        qobs_dtype *zero_point)
{
    static const float any = 1;
    const struct range_view ranges = {
        .dtype = layout->dtype,
        .n = layout->qparams,
        .rank = !observed || o->config.preset->statistic == STATISTIC_HISTOGRAM_QUARK ? RANK_EMPTY
                : layout->range.ndim == 0 && !qobs_found_is_list(o)                   ? RANK_SCALAR
                                                                                      : RANK_TENSOR,
        .global_scale = qobs_has_global_scale(o) ? &any : NULL,
    };
    qobs_formula_dtypes(&o->stages.formula, &ranges, scale, zero_point);
}

int qobs_check_size(size_t size, const char *name, size_t expected, qobs_error *error)
{
    if (size == expected)
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "size: is %zu bytes for %s, expected %zu", size, name, expected);
}

int qobs_check_qparam_sizes(const qobs_observer *o, const struct layout *layout, bool observed, const size_t *scale_size,
                            const size_t *zero_point_size, qobs_error *error)
{
    qobs_dtype scale, zero_point;
    int status = QOBS_OK;
    qobs_qparam_dtypes(o, layout, observed, &scale, &zero_point);
    if (scale_size)
        status = qobs_check_size(*scale_size, "scale", layout->qparams * qobs_dtype_size(scale), error);
    if (status == QOBS_OK && zero_point_size)
        status = qobs_check_size(*zero_point_size, "zero_point", layout->qparams * qobs_dtype_size(zero_point), error);
    return status;
}

int qobs_observer_qparams(const qobs_observer *o, void *scale, size_t scale_size, void *zero_point, size_t zero_point_size,
                          qobs_error *error)
{
    if (!o)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    int status = qobs_has_ranges(o) ? QOBS_OK : qobs_compute_qparams(o, NULL, NULL, error);
    if (status == QOBS_OK)
        status = qobs_check_qparam_sizes(o, &o->layout, qobs_has_ranges(o), scale ? &scale_size : NULL,
                                         zero_point ? &zero_point_size : NULL, error);
    return status == QOBS_OK ? qobs_compute_qparams(o, scale, zero_point, error) : status;
}
