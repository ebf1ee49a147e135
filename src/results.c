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
    RESULTS
};

/* Under upstream's names. */
static const char *name_of(const qobs_observer *o, enum result which)
{
    static const char *const names[RESULTS] = {"min_val",    "max_val",      "amax",  "global_min",
                                               "global_max", "global_scale", "scale", "zero_point"};
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
    struct range_view ranges = qobs_view_ranges(o);
    ranges.global_scale = qobs_has_global_scale(o) ? &any : NULL;
    const bool global = which == RESULT_GLOBAL_MIN || which == RESULT_GLOBAL_MAX || which == RESULT_GLOBAL_SCALE;
    const struct shape *shape = global ? &one : is_qparam(which) ? &o->layout.scale : &o->layout.range;
    const size_t struct_size = result->struct_size;
    qobs_dtype scale, zero_point;
    qobs_convention_dtypes(&o->config, &ranges, &scale, &zero_point);
    *result = (qobs_result){
        .struct_size = struct_size,
        .name = name_of(o, which),
        .dtype = which == RESULT_ZERO_POINT                              ? zero_point
                 : which == RESULT_SCALE || which == RESULT_GLOBAL_SCALE ? scale
                                                                         : o->layout.dtype,
        .ndim = shape->ndim,
    };
    memcpy(result->shape, shape->extent, sizeof result->shape);
    result->size = (global ? 1 : o->layout.qparams) * qobs_dtype_size(result->dtype);
}

/* Can it be read now? Scale and zero point only where the ranges leave any. */
static int check_available(const qobs_observer *o, enum result which, qobs_error *error)
{
    if (is_qparam(which))
        return compute(o, NULL, NULL, error);
    if (qobs_has_ranges(o))
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
    char known[96] = "";
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

static int read_range(const unsigned char *from, void *out, size_t size, qobs_error *error)
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
        return read_range(o->kept.state.min, out, size, error);
    case RESULT_MAX:
    case RESULT_AMAX:
        return read_range(o->kept.state.max, out, size, error);
    case RESULT_GLOBAL_MIN:
        return read_range(o->kept.state.min + whole, out, size, error);
    case RESULT_GLOBAL_MAX:
        return read_range(o->kept.state.max + whole, out, size, error);
    case RESULT_GLOBAL_SCALE: {
        const fp_mode mode = fp_enter();
        const float scale = global_scale(o);
        fp_leave(mode);
        memcpy(out, &scale, sizeof scale);
        return qobs_succeed(error);
    }
    case RESULT_SCALE:
        return compute(o, out, NULL, error);
    default:
        return compute(o, NULL, out, error);
    }
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
