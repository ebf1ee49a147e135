/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What can be read from an observer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convention/convention.h"
#include "error.h"
#include "fpenv.h"
#include "observer.h"
#include "search/kept.h"
#include "statistic/keep.h"

enum result {
    RESULT_MIN,
    RESULT_MAX,
    RESULT_AMAX,
    RESULT_INIT_SCALE,
    RESULT_GLOBAL_MIN,
    RESULT_GLOBAL_MAX,
    RESULT_GLOBAL_SCALE,
    RESULT_SCALE,
    RESULT_ZERO_POINT,
    RESULT_TOKENS,
    RESULT_BEST_STEP,
    RESULT_ERRORS,
    RESULT_ERRORS_BEFORE,
    RESULT_STOP_STEP,
    RESULT_IMATRIX_SUM,
    RESULT_IMATRIX_COUNT,
    RESULT_HISTOGRAM,
    RESULT_CALIB_HIST,
    RESULT_CALIB_BIN_EDGES,
    RESULT_NEW_MIN,
    RESULT_NEW_MAX,
    RESULTS
};

static const char *const names[RESULTS] = {
    [RESULT_MIN] = "min_val",
    [RESULT_MAX] = "max_val",
    [RESULT_AMAX] = "amax",
    [RESULT_INIT_SCALE] = "init_scale",
    [RESULT_GLOBAL_MIN] = "global_min",
    [RESULT_GLOBAL_MAX] = "global_max",
    [RESULT_GLOBAL_SCALE] = "global_scale",
    [RESULT_SCALE] = "scale",
    [RESULT_ZERO_POINT] = "zero_point",
    [RESULT_TOKENS] = "num_observed_tokens",
    [RESULT_BEST_STEP] = "best_step",
    [RESULT_ERRORS] = "errors",
    [RESULT_ERRORS_BEFORE] = "errors_before",
    [RESULT_STOP_STEP] = "stop_step",
    [RESULT_IMATRIX_SUM] = "imatrix_sum",
    [RESULT_IMATRIX_COUNT] = "imatrix_count",
    [RESULT_HISTOGRAM] = "histogram",
    [RESULT_CALIB_HIST] = "calib_hist",
    [RESULT_CALIB_BIN_EDGES] = "calib_bin_edges",
    [RESULT_NEW_MIN] = "new_min",
    [RESULT_NEW_MAX] = "new_max",
};

/* A result, and which part of it where upstream keeps the ranges in parts. */
struct item {
    enum result which;
    size_t part;
};

static bool is_llmc(const qobs_observer *o)
{
    return o->config.preset->family == FAMILY_LLMC;
}

static bool is_range(enum result which)
{
    return which == RESULT_MIN || which == RESULT_MAX;
}

static size_t blocks_across(const qobs_observer *o)
{
    return (size_t)o->layout.range.extent[o->layout.range.ndim - 1];
}

static size_t parts_of(const qobs_observer *o, enum result which)
{
    return !is_range(which)                ? 1
           : o->layout.ids == IDS_GROUPS ? blocks_across(o)
           : o->layout.ids == IDS_BLOCKS ? o->layout.qparams
                                         : 1;
}

/* Under upstream's names. */
static void name_item(const qobs_observer *o, struct item item, char name[QOBS_RESULT_NAME])
{
    const char *plain = names[item.which];
    if (!is_range(item.which) || o->layout.ids == IDS_NONE)
        snprintf(name, QOBS_RESULT_NAME, "%s%s", plain, is_range(item.which) && is_llmc(o) ? "s" : "");
    else if (o->layout.ids == IDS_BLOCKS)
        snprintf(name, QOBS_RESULT_NAME, "%s[block_%zu_%zu]", plain, item.part / blocks_across(o), item.part % blocks_across(o));
    else if (item.part > 0)
        snprintf(name, QOBS_RESULT_NAME, "%s[%zu]", plain, item.part);
    else
        snprintf(name, QOBS_RESULT_NAME, "%s[default]", plain);
}

/* The part that a name in name_item's form would be of, whatever else it says. */
static size_t part_in(const qobs_observer *o, const char *name)
{
    const char *id = strchr(name, '[');
    if (!id || o->layout.ids == IDS_NONE)
        return 0;
    if (o->layout.ids != IDS_BLOCKS)
        return (size_t)strtoull(id + 1, NULL, 10);
    const char *column = strrchr(id, '_');
    if (strncmp(id, "[block_", 7) != 0)
        return 0;
    return (size_t)strtoull(id + 7, NULL, 10) * blocks_across(o) + (size_t)strtoull(column + 1, NULL, 10);
}

bool qobs_has_global_scale(const qobs_observer *o)
{
    return is_llmc(o) && qobs_config_strategy(&o->config) == STRATEGY_TENSOR_GROUP;
}

bool qobs_has_whole(const qobs_config *config)
{
    return config->preset->family == FAMILY_LLMC && config->version != VERSION_CURRENT &&
           qobs_config_strategy(config) == STRATEGY_TENSOR_GROUP;
}

/* Is a range looked for in bins of the same width? */
static bool finds_range(const qobs_observer *o)
{
    const enum statistic statistic = o->config.preset->statistic;
    return statistic == STATISTIC_PERCENTILE || statistic == STATISTIC_SQUARED_ERROR;
}

/* Upstream's percentile of an empty histogram is a list of one range. */
static bool found_is_list(const qobs_observer *o)
{
    return o->config.preset->statistic == STATISTIC_PERCENTILE && qobs_has_ranges(o) && qobs_histogram_is_empty(o);
}

/* Is there such a result for this configuration? */
static bool has_result(const qobs_observer *o, enum result which)
{
    switch (which) {
    case RESULT_MIN:
    case RESULT_MAX:
        if (qobs_keeps(&o->config) == KEEPS_BINS)
            return finds_range(o);
        /* the form of September 2025 keeps none where it does not average */
        return qobs_keeps(&o->config) == KEEPS_RANGE &&
               !(is_llmc(o) && o->config.version == VERSION_2025_09 && qobs_memoryless(&o->config));
    case RESULT_AMAX:
        return qobs_keeps(&o->config) == KEEPS_ABSMAX || o->config.preset->statistic == STATISTIC_HISTOGRAM_TRT;
    case RESULT_INIT_SCALE:
        return o->config.preset->statistic == STATISTIC_ABSMAX_STEPS;
    case RESULT_GLOBAL_SCALE:
        return qobs_has_global_scale(o);
    case RESULT_GLOBAL_MIN:
    case RESULT_GLOBAL_MAX:
        return qobs_has_whole(&o->config) || o->whole.dtype != 0;
    case RESULT_TOKENS:
        return is_llmc(o) ? o->config.version == VERSION_2025_09 : o->config.preset->family == FAMILY_QUARK && qobs_keeps(&o->config) != KEEPS_NOTHING;
    case RESULT_BEST_STEP:
    case RESULT_ERRORS:
    case RESULT_ERRORS_BEFORE:
    case RESULT_STOP_STEP:
        return qobs_searches(&o->config);
    case RESULT_IMATRIX_SUM:
    case RESULT_IMATRIX_COUNT:
        return qobs_weighs_columns(&o->config);
    case RESULT_HISTOGRAM:
    case RESULT_NEW_MIN:
    case RESULT_NEW_MAX:
        return qobs_preset_has_histogram(o->config.preset);
    case RESULT_CALIB_HIST:
    case RESULT_CALIB_BIN_EDGES:
        return qobs_keeps(&o->config) == KEEPS_BINS;
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

/* Of the range of the whole, where upstream averages that on its own. */
static float global_scale(const qobs_observer *o)
{
    struct range_view ranges = qobs_view_ranges(o);
    if (qobs_has_whole(&o->config)) {
        ranges.min = o->whole.min;
        ranges.max = o->whole.max;
        ranges.n = 1;
    }
    return qobs_compressed_tensors_global_scale(&o->config, o->layout.dtype,
                                                o->fused ? o->fused_amax : qobs_compressed_tensors_amax(&ranges));
}

/* Is what the global scale is made of there? */
static bool global_scale_is_known(const qobs_observer *o)
{
    return o->fused || (qobs_has_whole(&o->config) ? o->whole.dtype != 0 : qobs_has_ranges(o));
}

static int compute(const qobs_observer *o, void *scale, void *zero_point, qobs_error *error)
{
    if (o->kept.histogram.bins > 0 && (scale || zero_point))
        return qobs_read_found(o, NULL, NULL, scale, zero_point, error);
    struct range_view ranges = qobs_view_ranges(o);
    const bool global = qobs_has_ranges(o) && qobs_has_global_scale(o);
    if (global && !global_scale_is_known(o))
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "scale: needs the global scale, for which no range of the whole has been observed");
    const fp_mode mode = fp_enter();
    const float g = global ? global_scale(o) : 1;
    ranges.global_scale = global ? &g : NULL;
    int status = qobs_convention(&o->config, &ranges, scale, zero_point, error);
    if (status == QOBS_OK && o->config.preset->statistic == STATISTIC_ABSMAX_STEPS)
        status = qobs_lower_scales(o, o->layout.dtype, scale, error);
    fp_leave(mode);
    if (status == QOBS_OK && o->kept.votes.candidates > 0)
        qobs_votes_read(&o->kept.votes, scale, zero_point);
    return status;
}

/* What scale and zero point of such a layout are; `observed`: of ranges, not of upstream's answer without data. */
static void qparam_dtypes(const qobs_observer *o, const struct layout *layout, bool observed, qobs_dtype *scale,
                          qobs_dtype *zero_point)
{
    static const float any = 1;
    const struct range_view ranges = {
        .dtype = layout->dtype,
        .n = layout->qparams,
        .held = !observed || o->config.preset->statistic == STATISTIC_HISTOGRAM_QUARK ? HELD_NOTHING
                : layout->range.ndim == 0 && !found_is_list(o)                        ? HELD_SCALARS
                                                                                      : HELD_VECTOR,
        .global_scale = qobs_has_global_scale(o) ? &any : NULL,
    };
    qobs_convention_dtypes(&o->config, &ranges, scale, zero_point);
}

/* What is read of the ranges as one result: all, or the part that upstream keeps under a name. */
static struct shape range_shape(const qobs_observer *o)
{
    if (o->layout.ids == IDS_GROUPS)
        return (struct shape){.ndim = 2, .extent = {o->layout.range.extent[0], 1}};
    return o->layout.ids == IDS_BLOCKS ? (struct shape){.ndim = 2, .extent = {1, 1}} : o->layout.range;
}

/* Upstream's minimum is an integer 0 where only the maximum is looked for. */
static bool min_is_integer(const qobs_observer *o)
{
    return o->config.preset->statistic == STATISTIC_SQUARED_ERROR ||
           (o->config.preset->statistic == STATISTIC_PERCENTILE && o->config.symmetric && !found_is_list(o));
}

static struct shape scale_shape(const qobs_observer *o)
{
    if (o->config.preset->statistic == STATISTIC_HISTOGRAM_QUARK)
        return qobs_convention_shape_without_data(&o->config);
    if (found_is_list(o) || o->config.preset->convention == CONVENTION_QUARK_TORCH)
        return (struct shape){.ndim = 1, .extent = {1}};
    return o->layout.scale;
}

static void describe(const qobs_observer *o, struct item item, qobs_result *result)
{
    struct shape shape = {.ndim = 1, .extent = {1}};
    qobs_dtype scale, zero_point, dtype = o->layout.dtype;
    qparam_dtypes(o, &o->layout, qobs_has_ranges(o), &scale, &zero_point);
    switch (item.which) {
    case RESULT_MIN:
    case RESULT_MAX:
        shape = found_is_list(o) ? shape : range_shape(o);
        dtype = item.which == RESULT_MIN && finds_range(o) && min_is_integer(o) ? QOBS_I64 : dtype;
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
    name_item(o, item, result->name);
    memcpy(result->shape, shape.extent, sizeof result->shape);
    result->size = qobs_dtype_size(dtype);
    for (int d = 0; d < shape.ndim; d++)
        result->size *= (size_t)shape.extent[d];
}

static bool is_available(const qobs_observer *o, enum result which)
{
    switch (which) {
    case RESULT_GLOBAL_MIN:
    case RESULT_GLOBAL_MAX:
        return o->whole.dtype != 0;
    case RESULT_GLOBAL_SCALE:
        return qobs_has_ranges(o) && global_scale_is_known(o);
    case RESULT_TOKENS:
        return (is_llmc(o) ? o->counts.tokens : o->counts.batches + o->counts.nonzero_tokens) > 0;
    case RESULT_BEST_STEP:
    case RESULT_ERRORS:
    case RESULT_ERRORS_BEFORE:
    case RESULT_STOP_STEP:
        return qobs_has_ranges(o) && o->searched.qparams > 0;
    case RESULT_IMATRIX_SUM:
    case RESULT_IMATRIX_COUNT:
        return o->importance.columns > 0;
    default:
        return qobs_has_ranges(o);
    }
}

/* Can it be read now? Scale and zero point only where the ranges leave any. */
static int check_available(const qobs_observer *o, struct item item, qobs_error *error)
{
    char name[QOBS_RESULT_NAME];
    if (is_qparam(item.which))
        return compute(o, NULL, NULL, error);
    if (item.which == RESULT_AMAX && o->config.preset->statistic == STATISTIC_HISTOGRAM_TRT && qobs_has_ranges(o))
        return qobs_read_found(o, NULL, NULL, NULL, NULL, error);
    if (is_available(o, item.which))
        return QOBS_OK;
    name_item(o, item, name);
    return qobs_fail(error, QOBS_ERROR_NO_DATA, "%s: nothing has been observed yet", name);
}

/* How many of the results there are now. */
static size_t count_of(const qobs_observer *o, enum result which)
{
    const struct item item = {.which = which};
    return has_result(o, which) && check_available(o, item, NULL) == QOBS_OK ? parts_of(o, which) : 0;
}

static int find(const qobs_observer *o, const char *name, struct item *item, qobs_error *error)
{
    char known[230] = "", own[QOBS_RESULT_NAME];
    for (int i = 0; i < RESULTS; i++) {
        const enum result which = (enum result)i;
        const bool has = has_result(o, which);
        *item = (struct item){.which = which, .part = name ? part_in(o, name) : 0};
        name_item(o, (struct item){.which = which}, own);
        if (has)
            strcat(strcat(known, *known ? ", " : ""), own);
        if (is_range(which) && item->part < parts_of(o, which))
            name_item(o, *item, own);
        if (!name || strcmp(name, own) != 0)
            continue;
        if (has)
            return check_available(o, *item, error);
        if (which >= RESULT_BEST_STEP)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "name: %s does not come with %s", name, o->config.preset->name);
        if (which == RESULT_GLOBAL_SCALE || which == RESULT_GLOBAL_MIN || which == RESULT_GLOBAL_MAX)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "name: %s comes with llmc presets, strategy tensor_group%s only",
                             name, which == RESULT_GLOBAL_SCALE ? "" : " and versions before the current");
    }
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "name: '%s' is no result; known are %s", name ? name : "(null)",
                     *known ? known : "none");
}

static int check_result(const qobs_observer *o, const qobs_result *result, qobs_error *error)
{
    if (!o)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    if (!result || result->struct_size < sizeof *result)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "result: struct_size is %zu, expected %zu",
                         result ? result->struct_size : 0, sizeof *result);
    return QOBS_OK;
}

static int check_size(size_t size, const char *name, size_t expected, qobs_error *error)
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
    qparam_dtypes(o, layout, observed, &scale, &zero_point);
    if (scale_size)
        status = check_size(*scale_size, "scale", layout->qparams * qobs_dtype_size(scale), error);
    if (status == QOBS_OK && zero_point_size)
        status = check_size(*zero_point_size, "zero_point", layout->qparams * qobs_dtype_size(zero_point), error);
    return status;
}

/* ---- Public ----------------------------------------------------------------------------------------------------------- */

size_t qobs_observer_result_count(const qobs_observer *o)
{
    size_t n = 0;
    for (int i = 0; o && i < RESULTS; i++)
        n += count_of(o, (enum result)i);
    return n;
}

int qobs_observer_result(const qobs_observer *o, size_t index, qobs_result *result, qobs_error *error)
{
    const int status = check_result(o, result, error);
    if (status != QOBS_OK)
        return status;
    struct item item = {.part = index};
    for (int i = 0; i < RESULTS; i++) {
        const size_t n = count_of(o, (enum result)i);
        item.which = (enum result)i;
        if (item.part < n) {
            describe(o, item, result);
            return qobs_succeed(error);
        }
        item.part -= n;
    }
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "index: is %zu, there are %zu results", index,
                     qobs_observer_result_count(o));
}

int qobs_observer_find(const qobs_observer *o, const char *name, qobs_result *result, qobs_error *error)
{
    struct item item;
    int status = check_result(o, result, error);
    if (status == QOBS_OK)
        status = find(o, name, &item, error);
    if (status != QOBS_OK)
        return status;
    describe(o, item, result);
    return qobs_succeed(error);
}

/* A part of the ranges: of groups every so-manieth, of blocks one. */
static void read_range(const qobs_observer *o, struct item item, void *out)
{
    const size_t element = qobs_dtype_size(o->layout.dtype);
    const unsigned char *from = item.which == RESULT_MIN ? o->kept.state.min : o->kept.state.max;
    const size_t step = o->layout.ids == IDS_GROUPS ? blocks_across(o) : o->layout.ids == IDS_BLOCKS ? o->layout.qparams : 1;
    for (size_t i = item.part, n = 0; i < o->layout.qparams; i += step, n++)
        memcpy((unsigned char *)out + n * element, from + i * element, element);
}

/* Where multiples are tried, the one found. */
static void read_amax(const qobs_observer *o, struct item item, void *out)
{
    if (o->config.preset->statistic != STATISTIC_MULTIPLES) {
        read_range(o, item, out);
        return;
    }
    const fp_mode mode = fp_enter();
    qobs_read_multiples(o, out);
    fp_leave(mode);
}

static int read_found(const qobs_observer *o, enum result which, void *out, qobs_error *error)
{
    float min, max;
    const int status = qobs_read_found(o, &min, &max, NULL, NULL, error);
    if (status != QOBS_OK)
        return status;
    const int64_t whole = (int64_t)min;
    if (which == RESULT_MIN && min_is_integer(o))
        memcpy(out, &whole, sizeof whole);
    else
        memcpy(out, which == RESULT_MIN ? &min : &max, sizeof max);
    return QOBS_OK;
}

static void read_init_scale(const qobs_observer *o, float *out)
{
    const fp_mode mode = fp_enter();
    qobs_read_init_scale(o, out);
    fp_leave(mode);
}

static int64_t observed_tokens(const qobs_observer *o)
{
    return (int64_t)(is_llmc(o) ? o->counts.tokens : o->counts.nonzero_tokens);
}

/* Writes a result that is there into memory that fits. */
static int give(const qobs_observer *o, struct item item, void *out, size_t size, qobs_error *error)
{
    const int64_t tokens = observed_tokens(o);
    const fp_mode mode = fp_enter();
    const float scale = item.which == RESULT_GLOBAL_SCALE ? global_scale(o) : 0;
    fp_leave(mode);
    const void *from = NULL;
    switch (item.which) {
    case RESULT_SCALE:
        return compute(o, out, NULL, error);
    case RESULT_ZERO_POINT:
        return compute(o, NULL, out, error);
    case RESULT_MIN:
    case RESULT_MAX:
        if (finds_range(o))
            return read_found(o, item.which, out, error);
        read_range(o, item, out);
        return qobs_succeed(error);
    case RESULT_AMAX:
        if (o->config.preset->statistic == STATISTIC_HISTOGRAM_TRT)
            return qobs_read_found(o, NULL, out, NULL, NULL, error);
        read_amax(o, item, out);
        return qobs_succeed(error);
    case RESULT_INIT_SCALE:
        read_init_scale(o, out);
        return qobs_succeed(error);
    case RESULT_IMATRIX_SUM:
        qobs_importance_sums(&o->importance, out);
        return qobs_succeed(error);
    case RESULT_HISTOGRAM:
    case RESULT_CALIB_HIST:
        qobs_read_histogram(o, out);
        return qobs_succeed(error);
    case RESULT_CALIB_BIN_EDGES:
        qobs_read_bin_edges(o, out);
        return qobs_succeed(error);
    case RESULT_NEW_MIN:
        return qobs_read_found(o, out, NULL, NULL, NULL, error);
    case RESULT_NEW_MAX:
        return qobs_read_found(o, NULL, out, NULL, NULL, error);
    case RESULT_GLOBAL_MIN:
    case RESULT_GLOBAL_MAX:
        from = item.which == RESULT_GLOBAL_MIN ? o->whole.min : o->whole.max;
        break;
    case RESULT_GLOBAL_SCALE:
        from = &scale;
        break;
    case RESULT_TOKENS:
        from = &tokens;
        break;
    case RESULT_BEST_STEP:
        from = o->searched.best_step;
        break;
    case RESULT_ERRORS:
    case RESULT_ERRORS_BEFORE:
        from = item.which == RESULT_ERRORS ? o->searched.error : o->searched.error_before;
        break;
    case RESULT_STOP_STEP:
        from = &o->searched.stop_step;
        break;
    default:
        from = &o->importance.tokens;
        break;
    }
    memcpy(out, from, size);
    return qobs_succeed(error);
}

int qobs_observer_read(const qobs_observer *o, const char *name, void *out, size_t size, qobs_error *error)
{
    struct item item;
    qobs_result result = {.struct_size = sizeof result};
    int status = check_result(o, &result, error);
    if (status == QOBS_OK)
        status = find(o, name, &item, error);
    if (status != QOBS_OK)
        return status;
    describe(o, item, &result);
    status = check_size(size, result.name, result.size, error);
    if (status == QOBS_OK && !out && size > 0)
        status = qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "out: is NULL");
    return status == QOBS_OK ? give(o, item, out, size, error) : status;
}

int qobs_observer_search_report(const qobs_observer *o, qobs_search_report *report, qobs_error *error)
{
    if (!o)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    const int status = qobs_search_report_check(report, error);
    if (status != QOBS_OK)
        return status;
    if (!qobs_searches(&o->config))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: %s does not search", o->config.preset->name);
    if (o->searched.qparams == 0)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been searched yet");
    const fp_mode mode = fp_enter();
    qobs_search_report_of(&o->searched, report);
    fp_leave(mode);
    return qobs_succeed(error);
}

int qobs_observer_qparams(const qobs_observer *o, void *scale, size_t scale_size, void *zero_point, size_t zero_point_size,
                          qobs_error *error)
{
    if (!o)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    int status = qobs_has_ranges(o) ? QOBS_OK : compute(o, NULL, NULL, error);
    if (status == QOBS_OK)
        status = qobs_check_qparam_sizes(o, &o->layout, qobs_has_ranges(o), scale ? &scale_size : NULL,
                                         zero_point ? &zero_point_size : NULL, error);
    return status == QOBS_OK ? compute(o, scale, zero_point, error) : status;
}
