/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What can be read from an observer. */
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "observer/result.h"
#include "observer/post_search.h"
#include "measure/accumulators.h"

static int check_result(const qobs_observer *o, const qobs_result *result, qobs_error *error)
{
    if (!o)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    if (!result || result->struct_size < sizeof *result)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "result: struct_size is %zu, expected %zu",
                         result ? result->struct_size : 0, sizeof *result);
    return QOBS_OK;
}

size_t qobs_observer_result_count(const qobs_observer *o)
{
    size_t n = 0;
    for (int i = 0; o && i < RESULTS; i++)
        n += qobs_result_count_of(o, (enum result)i);
    return n;
}

int qobs_observer_result(const qobs_observer *o, size_t index, qobs_result *result, qobs_error *error)
{
    const int status = check_result(o, result, error);
    if (status != QOBS_OK)
        return status;
    struct item item = {.part = index};
    for (int i = 0; i < RESULTS; i++) {
        const size_t n = qobs_result_count_of(o, (enum result)i);
        item.which = (enum result)i;
        if (item.part < n) {
            qobs_result_describe(o, item, result);
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
        status = qobs_result_find_item(o, name, &item, error);
    if (status != QOBS_OK)
        return status;
    qobs_result_describe(o, item, result);
    return qobs_succeed(error);
}

/* A part of the ranges: of groups every so-manieth, of blocks one. */
static void read_range(const qobs_observer *o, struct item item, void *out)
{
    const size_t element = qobs_dtype_size(o->layout.dtype);
    const unsigned char *from = item.which == RESULT_MIN ? o->kept.state.min : o->kept.state.max;
    const size_t step = o->layout.keying == KEYING_GROUPS   ? qobs_blocks_across(o)
                        : o->layout.keying == KEYING_BLOCKS ? o->layout.qparams
                                                      : 1;
    for (size_t i = item.part, n = 0; i < o->layout.qparams; i += step, n++)
        memcpy((unsigned char *)out + n * element, from + i * element, element);
}

/* Where multiples are tried, the one found. */
static void read_amax(const qobs_observer *o, struct item item, void *out)
{
    const struct search_state state = qobs_search_state(o);
    if (o->stages.range.ops->amax)
        o->stages.range.ops->amax(&state, out);
    else
        read_range(o, item, out);
}

static int read_found(const qobs_observer *o, enum result which, void *out, qobs_error *error)
{
    float min, max;
    const int status = qobs_read_found(o, &min, &max, NULL, NULL, error);
    if (status != QOBS_OK)
        return status;
    if (which == RESULT_MIN && qobs_min_is_integer(o)) {
        const int64_t whole = (int64_t)min;
        memcpy(out, &whole, sizeof whole);
    } else {
        memcpy(out, which == RESULT_MIN ? &min : &max, sizeof max);
    }
    return QOBS_OK;
}

static int64_t observed_tokens(const qobs_observer *o)
{
    return (int64_t)(is_llmc(o) ? o->counts.tokens : o->counts.nonzero_tokens);
}

/* Writes a result that is there into memory that fits. */
static int give(const qobs_observer *o, struct item item, void *out, size_t size, qobs_error *error)
{
    const int64_t tokens = observed_tokens(o);
    const float scale = item.which == RESULT_GLOBAL_SCALE ? qobs_read_global_scale(o) : 0;
    struct search_state state;
    const void *from = NULL;
    switch (item.which) {
    case RESULT_SCALE:
        return qobs_compute_qparams(o, out, NULL, error);
    case RESULT_ZERO_POINT:
        return qobs_compute_qparams(o, NULL, out, error);
    case RESULT_MIN:
    case RESULT_MAX:
        if (qobs_finds_range(o))
            return read_found(o, item.which, out, error);
        read_range(o, item, out);
        return qobs_succeed(error);
    case RESULT_AMAX:
        if (o->config.preset->statistic == STATISTIC_HISTOGRAM_MODELOPT)
            return qobs_read_found(o, NULL, out, NULL, NULL, error);
        read_amax(o, item, out);
        return qobs_succeed(error);
    case RESULT_INIT_SCALE:
        state = qobs_search_state(o);
        o->stages.range.ops->init_scale(&state, out);
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
        status = qobs_result_find_item(o, name, &item, error);
    if (status != QOBS_OK)
        return status;
    qobs_result_describe(o, item, &result);
    status = qobs_check_size(size, result.name, result.size, error);
    if (status == QOBS_OK && !out && size > 0)
        status = qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "out: is NULL");
    if (status != QOBS_OK)
        return status;
    if (size == 0) /* out may be NULL */
        return qobs_succeed(error);
    const fp_mode mode = fp_enter();
    status = give(o, item, out, size, error);
    fp_leave(mode);
    return status;
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
