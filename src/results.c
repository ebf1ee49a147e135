/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What can be read from an observer. */
#include <string.h>

#include "convention/convention.h"
#include "error.h"
#include "fpenv.h"
#include "observer.h"
#include "statistic/keep.h"

enum result {
    RESULT_MIN,
    RESULT_MAX,
    RESULT_AMAX,
    RESULT_GLOBAL_MIN,
    RESULT_GLOBAL_MAX,
    RESULT_GLOBAL_SCALE,
    RESULT_SCALE,
    RESULT_ZERO_POINT,
    RESULT_BEST_STEP,
    RESULT_ERRORS,
    RESULT_ERRORS_BEFORE,
    RESULT_STOP_STEP,
    RESULT_IMATRIX_SUM,
    RESULT_IMATRIX_COUNT,
    RESULTS
};

/* Under upstream's names. */
static const char *name_of(const qobs_observer *o, enum result which)
{
    static const char *const names[RESULTS] = {
        "min_val",    "max_val",   "amax",   "global_min",    "global_max", "global_scale", "scale",
        "zero_point", "best_step", "errors", "errors_before", "stop_step",  "imatrix_sum",  "imatrix_count"};
    if (o->config.preset->family == FAMILY_LLMC && which <= RESULT_MAX)
        return which == RESULT_MIN ? "min_vals" : "max_vals";
    return names[which];
}

bool qobs_has_global_scale(const qobs_observer *o)
{
    return o->config.preset->family == FAMILY_LLMC && qobs_config_strategy(&o->config) == STRATEGY_TENSOR_GROUP;
}

size_t qobs_entries(const qobs_config *config, size_t qparams)
{
    const bool whole = config->preset->family == FAMILY_LLMC && config->version == VERSION_2025_10 &&
                       qobs_config_strategy(config) == STRATEGY_TENSOR_GROUP;
    return qparams + whole;
}

/* Is there such a result for this configuration? */
static bool has_result(const qobs_observer *o, enum result which)
{
    switch (which) {
    case RESULT_MIN:
    case RESULT_MAX:
        return qobs_keeps(&o->config) == KEEPS_RANGE;
    case RESULT_AMAX:
        return qobs_keeps(&o->config) == KEEPS_ABSMAX;
    case RESULT_GLOBAL_SCALE:
        return qobs_has_global_scale(o);
    case RESULT_GLOBAL_MIN:
    case RESULT_GLOBAL_MAX:
        return qobs_entries(&o->config, 0) > 0;
    case RESULT_BEST_STEP:
    case RESULT_ERRORS:
    case RESULT_ERRORS_BEFORE:
    case RESULT_STOP_STEP:
        return qobs_searches(&o->config);
    case RESULT_IMATRIX_SUM:
    case RESULT_IMATRIX_COUNT:
        return qobs_weighs_columns(&o->config);
    default:
        return qobs_has_convention(&o->config);
    }
}

static bool is_qparam(enum result which)
{
    return which == RESULT_SCALE || which == RESULT_ZERO_POINT;
}

/* ---- Computing -------------------------------------------------------------------------------------------------------- */

struct range_view qobs_view_ranges(const qobs_observer *o)
{
    if (!qobs_has_ranges(o))
        return qobs_no_ranges();
    return (struct range_view){
        .dtype = o->layout.dtype,
        .n = o->layout.qparams,
        .held = o->layout.range.ndim == 0 ? HELD_SCALARS : HELD_VECTOR,
        .min = o->kept.state.min,
        .max = o->kept.state.max,
    };
}

static float global_scale(const qobs_observer *o)
{
    struct range_view ranges = qobs_view_ranges(o);
    if (o->layout.entries > o->layout.qparams) { /* the range of the whole, which has been averaged on its own */
        const size_t before = o->layout.qparams * qobs_dtype_size(o->layout.dtype);
        ranges.min = o->kept.state.min + before;
        ranges.max = o->kept.state.max + before;
        ranges.n = 1;
    }
    return qobs_compressed_tensors_global_scale(&o->config, o->layout.dtype,
                                                o->fused ? o->fused_amax : qobs_compressed_tensors_amax(&ranges));
}

static int compute(const qobs_observer *o, void *scale, void *zero_point, qobs_error *error)
{
    struct range_view ranges = qobs_view_ranges(o);
    const bool global = qobs_has_ranges(o) && qobs_has_global_scale(o);
    const fp_mode mode = fp_enter();
    const float g = global ? global_scale(o) : 1;
    ranges.global_scale = global ? &g : NULL;
    const int status = qobs_convention(&o->config, &ranges, scale, zero_point, error);
    fp_leave(mode);
    if (status == QOBS_OK && o->kept.votes.candidates > 0)
        qobs_votes_read(&o->kept.votes, scale, zero_point);
    return status;
}

static void describe(const qobs_observer *o, enum result which, qobs_result *result)
{
    static const struct shape one = {.ndim = 1, .extent = {1}};
    static const float any = 1;
    const struct shape columns = {.ndim = 1, .extent = {o->importance.columns}};
    const struct shape *shape = &one;
    struct range_view ranges = qobs_view_ranges(o);
    ranges.global_scale = qobs_has_global_scale(o) ? &any : NULL;
    qobs_dtype scale, zero_point, dtype = o->layout.dtype;
    qobs_convention_dtypes(&o->config, &ranges, &scale, &zero_point);
    switch (which) {
    case RESULT_MIN:
    case RESULT_MAX:
    case RESULT_AMAX:
        shape = &o->layout.range;
        break;
    case RESULT_GLOBAL_MIN:
    case RESULT_GLOBAL_MAX:
        break;
    case RESULT_GLOBAL_SCALE:
        dtype = scale;
        break;
    case RESULT_SCALE:
    case RESULT_ZERO_POINT:
        dtype = which == RESULT_SCALE ? scale : zero_point;
        shape = &o->layout.scale;
        break;
    case RESULT_BEST_STEP:
    case RESULT_ERRORS:
    case RESULT_ERRORS_BEFORE:
        dtype = which == RESULT_BEST_STEP ? QOBS_I32 : QOBS_F64;
        shape = &o->layout.range;
        break;
    case RESULT_STOP_STEP:
        dtype = QOBS_I32;
        break;
    case RESULT_IMATRIX_SUM:
        dtype = QOBS_F32;
        shape = &columns;
        break;
    default:
        dtype = QOBS_I64;
        break;
    }
    const size_t struct_size = result->struct_size;
    *result = (qobs_result){.struct_size = struct_size, .name = name_of(o, which), .dtype = dtype, .ndim = shape->ndim};
    memcpy(result->shape, shape->extent, sizeof result->shape);
    result->size = qobs_dtype_size(dtype);
    for (int d = 0; d < shape->ndim; d++)
        result->size *= (size_t)shape->extent[d];
}

/* Can it be read now? Scale and zero point only where the ranges leave any. */
static int check_available(const qobs_observer *o, enum result which, qobs_error *error)
{
    if (is_qparam(which))
        return compute(o, NULL, NULL, error);
    if (which >= RESULT_IMATRIX_SUM ? o->importance.columns > 0
                                    : qobs_has_ranges(o) && (which < RESULT_BEST_STEP || o->searched.qparams > 0))
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_NO_DATA, "%s: nothing has been observed yet", name_of(o, which));
}

static size_t available(const qobs_observer *o, enum result which[RESULTS])
{
    size_t n = 0;
    for (int i = 0; i < RESULTS; i++)
        if (has_result(o, (enum result)i) && check_available(o, (enum result)i, NULL) == QOBS_OK)
            which[n++] = (enum result)i;
    return n;
}

static int find(const qobs_observer *o, const char *name, enum result *which, qobs_error *error)
{
    char known[160] = "";
    for (int i = 0; i < RESULTS; i++) {
        const enum result result = (enum result)i;
        const bool has = has_result(o, result);
        if (has)
            strcat(strcat(known, *known ? ", " : ""), name_of(o, result));
        if (!name || strcmp(name, name_of(o, result)) != 0)
            continue;
        *which = result;
        if (has)
            return check_available(o, result, error);
        if (result >= RESULT_BEST_STEP)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "name: %s does not come with %s", name, o->config.preset->name);
        if (o->config.preset->family == FAMILY_LLMC && result != RESULT_AMAX)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "name: %s comes with strategy tensor_group%s only", name,
                             result == RESULT_GLOBAL_SCALE ? "" : " and version 2025-10");
    }
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "name: '%s' is no result; known are %s", name ? name : "(null)",
                     *known ? known : "none");
}

static int check_result(const qobs_result *result, qobs_error *error)
{
    if (!result || result->struct_size < sizeof *result)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "result: struct_size is %zu, expected %zu",
                         result ? result->struct_size : 0, sizeof *result);
    return QOBS_OK;
}

static int check_size(const qobs_observer *o, enum result which, size_t size, qobs_error *error)
{
    qobs_result result = {.struct_size = sizeof result};
    describe(o, which, &result);
    if (size != result.size)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "size: is %zu bytes for %s, expected %zu", size, result.name,
                         result.size);
    return QOBS_OK;
}

/* ---- Public ----------------------------------------------------------------------------------------------------------- */

size_t qobs_observer_result_count(const qobs_observer *o)
{
    enum result which[RESULTS];
    return available(o, which);
}

int qobs_observer_result(const qobs_observer *o, size_t index, qobs_result *result, qobs_error *error)
{
    enum result which[RESULTS];
    const size_t n = available(o, which);
    if (check_result(result, error) != QOBS_OK)
        return QOBS_ERROR_INVALID_ARGUMENT;
    if (index >= n)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "index: is %zu, there are %zu results", index, n);
    describe(o, which[index], result);
    return qobs_succeed(error);
}

int qobs_observer_find(const qobs_observer *o, const char *name, qobs_result *result, qobs_error *error)
{
    enum result which;
    int status = check_result(result, error);
    if (status == QOBS_OK)
        status = find(o, name, &which, error);
    if (status != QOBS_OK)
        return status;
    describe(o, which, result);
    return qobs_succeed(error);
}

static int copy(const void *from, void *out, size_t size, qobs_error *error)
{
    memcpy(out, from, size);
    return qobs_succeed(error);
}

int qobs_observer_read(const qobs_observer *o, const char *name, void *out, size_t size, qobs_error *error)
{
    enum result which;
    int status = find(o, name, &which, error);
    if (status == QOBS_OK)
        status = check_size(o, which, size, error);
    if (status != QOBS_OK)
        return status;
    const size_t whole = o->layout.qparams * qobs_dtype_size(o->layout.dtype);
    switch (which) {
    case RESULT_MIN:
        return copy(o->kept.state.min, out, size, error);
    case RESULT_MAX:
    case RESULT_AMAX:
        return copy(o->kept.state.max, out, size, error);
    case RESULT_GLOBAL_MIN:
        return copy(o->kept.state.min + whole, out, size, error);
    case RESULT_GLOBAL_MAX:
        return copy(o->kept.state.max + whole, out, size, error);
    case RESULT_GLOBAL_SCALE: {
        const fp_mode mode = fp_enter();
        const float scale = global_scale(o);
        fp_leave(mode);
        memcpy(out, &scale, sizeof scale);
        return qobs_succeed(error);
    }
    case RESULT_SCALE:
        return compute(o, out, NULL, error);
    case RESULT_ZERO_POINT:
        return compute(o, NULL, out, error);
    case RESULT_BEST_STEP:
        return copy(o->searched.best_step, out, size, error);
    case RESULT_ERRORS:
        return copy(o->searched.error, out, size, error);
    case RESULT_ERRORS_BEFORE:
        return copy(o->searched.error_before, out, size, error);
    case RESULT_STOP_STEP:
        return copy(&o->searched.stop_step, out, size, error);
    case RESULT_IMATRIX_COUNT:
        return copy(&o->importance.tokens, out, size, error);
    default:
        qobs_importance_sums(&o->importance, out);
        return qobs_succeed(error);
    }
}

static double total(const double *errors, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += errors[i];
    return sum;
}

int qobs_observer_search_report(const qobs_observer *o, qobs_search_report *report, qobs_error *error)
{
    const struct search_record *searched = &o->searched;
    if (!report || report->struct_size < sizeof *report)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "report: struct_size is %zu, expected %zu",
                         report ? report->struct_size : 0, sizeof *report);
    if (!qobs_searches(&o->config))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: %s does not search", o->config.preset->name);
    if (searched->qparams == 0)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been searched yet");
    const fp_mode mode = fp_enter();
    *report = (qobs_search_report){
        .struct_size = report->struct_size,
        .steps = searched->steps,
        .stop_step = searched->stop_step,
        .error_before = total(searched->error_before, searched->qparams),
        .error = total(searched->error, searched->qparams),
        .weighted = searched->weighted,
        .fallback = qobs_importance_fault_text(searched->fault),
    };
    fp_leave(mode);
    return qobs_succeed(error);
}

int qobs_observer_qparams(const qobs_observer *o, void *scale, size_t scale_size, void *zero_point, size_t zero_point_size,
                          qobs_error *error)
{
    int status = qobs_has_ranges(o) ? QOBS_OK : compute(o, NULL, NULL, error);
    if (status == QOBS_OK && scale)
        status = check_size(o, RESULT_SCALE, scale_size, error);
    if (status == QOBS_OK && zero_point)
        status = check_size(o, RESULT_ZERO_POINT, zero_point_size, error);
    return status == QOBS_OK ? compute(o, scale, zero_point, error) : status;
}
