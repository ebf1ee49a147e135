/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Which results there are, and their names. */
#include "observer/result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "measure/accumulators.h"

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

static bool is_range(enum result which)
{
    return which == RESULT_MIN || which == RESULT_MAX;
}

size_t qobs_blocks_across(const qobs_observer *o)
{
    return (size_t)o->layout.range.extent[o->layout.range.ndim - 1];
}

size_t qobs_result_parts(const qobs_observer *o, enum result which)
{
    return !is_range(which)                ? 1
           : o->layout.keying == KEYING_GROUPS ? qobs_blocks_across(o)
           : o->layout.keying == KEYING_BLOCKS ? o->layout.qparams
                                         : 1;
}

void qobs_result_name(const qobs_observer *o, struct item item, char name[QOBS_RESULT_NAME])
{
    const char *plain = names[item.which];
    if (!is_range(item.which) || o->layout.keying == KEYING_NONE)
        snprintf(name, QOBS_RESULT_NAME, "%s%s", plain, is_range(item.which) && is_llmc(o) ? "s" : "");
    else if (o->layout.keying == KEYING_BLOCKS)
        snprintf(name, QOBS_RESULT_NAME, "%s[block_%zu_%zu]", plain, item.part / qobs_blocks_across(o),
                 item.part % qobs_blocks_across(o));
    else if (item.part > 0)
        snprintf(name, QOBS_RESULT_NAME, "%s[%zu]", plain, item.part);
    else
        snprintf(name, QOBS_RESULT_NAME, "%s[default]", plain);
}

/* The part that a name in name_item's form would be of, whatever else it says. */
static size_t part_in(const qobs_observer *o, const char *name)
{
    const char *id = strchr(name, '[');
    if (!id || o->layout.keying == KEYING_NONE)
        return 0;
    if (o->layout.keying != KEYING_BLOCKS)
        return (size_t)strtoull(id + 1, NULL, 10);
    const char *column = strrchr(id, '_');
    if (strncmp(id, "[block_", 7) != 0)
        return 0;
    return (size_t)strtoull(id + 7, NULL, 10) * qobs_blocks_across(o) + (size_t)strtoull(column + 1, NULL, 10);
}

bool qobs_finds_range(const qobs_observer *o)
{
    const enum statistic statistic = o->config.preset->statistic;
    return statistic == STATISTIC_PERCENTILE || statistic == STATISTIC_SQUARED_ERROR;
}

/* Is there such a result for this configuration? */
static bool has_result(const qobs_observer *o, enum result which)
{
    switch (which) {
    case RESULT_MIN:
    case RESULT_MAX:
        if (qobs_keeps(&o->config) == KEEPS_BINS)
            return qobs_finds_range(o);
        /* the form of September 2025 keeps none where it does not average */
        return qobs_keeps(&o->config) == KEEPS_RANGE &&
               !(is_llmc(o) && o->config.version == VERSION_2025_09 && qobs_memoryless(&o->config));
    case RESULT_AMAX:
        return qobs_keeps(&o->config) == KEEPS_ABSMAX || o->config.preset->statistic == STATISTIC_HISTOGRAM_MODELOPT;
    case RESULT_INIT_SCALE:
        return o->config.preset->statistic == STATISTIC_ABSMAX_STEPS;
    case RESULT_GLOBAL_SCALE:
        return qobs_has_global_scale(o);
    case RESULT_GLOBAL_MIN:
    case RESULT_GLOBAL_MAX:
        return qobs_has_whole(&o->config) || o->whole.dtype != 0;
    case RESULT_TOKENS:
        return is_llmc(o) ? o->config.version == VERSION_2025_09
                          : o->config.preset->family == FAMILY_QUARK && qobs_keeps(&o->config) != KEEPS_NOTHING;
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
        return o->stages.formula.ops != &qobs_formula_none;
    }
}

static bool is_qparam(enum result which)
{
    return which == RESULT_SCALE || which == RESULT_ZERO_POINT;
}

static bool is_available(const qobs_observer *o, enum result which)
{
    switch (which) {
    case RESULT_GLOBAL_MIN:
    case RESULT_GLOBAL_MAX:
        return o->whole.dtype != 0;
    case RESULT_GLOBAL_SCALE:
        return qobs_has_ranges(o) && qobs_global_scale_is_known(o);
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
        return qobs_compute_qparams(o, NULL, NULL, error);
    if (item.which == RESULT_AMAX && o->config.preset->statistic == STATISTIC_HISTOGRAM_MODELOPT && qobs_has_ranges(o))
        return qobs_read_found(o, NULL, NULL, NULL, NULL, error);
    if (is_available(o, item.which))
        return QOBS_OK;
    qobs_result_name(o, item, name);
    return qobs_fail(error, QOBS_ERROR_NO_DATA, "%s: nothing has been observed yet", name);
}

/* How many of the results there are now. */
size_t qobs_result_count_of(const qobs_observer *o, enum result which)
{
    const struct item item = {.which = which};
    return has_result(o, which) && check_available(o, item, NULL) == QOBS_OK ? qobs_result_parts(o, which) : 0;
}

int qobs_result_find_item(const qobs_observer *o, const char *name, struct item *item, qobs_error *error)
{
    char known[230] = "", own[QOBS_RESULT_NAME];
    size_t length = 0;
    for (int i = 0; i < RESULTS; i++) {
        const enum result which = (enum result)i;
        const bool has = has_result(o, which);
        *item = (struct item){.which = which, .part = name ? part_in(o, name) : 0};
        qobs_result_name(o, (struct item){.which = which}, own);
        if (has && length < sizeof known)
            length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", length > 0 ? ", " : "", own);
        if (is_range(which) && item->part < qobs_result_parts(o, which))
            qobs_result_name(o, *item, own);
        if (!name || strcmp(name, own) != 0)
            continue;
        if (has)
            return check_available(o, *item, error);
        if (which >= RESULT_BEST_STEP)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "name: %s does not come with %s", name,
                             o->config.preset->name);
        if (which == RESULT_GLOBAL_SCALE || which == RESULT_GLOBAL_MIN || which == RESULT_GLOBAL_MAX)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "name: %s comes with llmc presets, strategy tensor_group%s only", name,
                             which == RESULT_GLOBAL_SCALE ? "" : " and versions before the current");
    }
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "name: '%s' is no result; known are %s", name ? name : "(null)",
                     *known ? known : "none");
}
