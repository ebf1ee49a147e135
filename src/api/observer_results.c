/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reading an observer: results by index and by name, and the report of a search. */
#include "base/error.h"
#include "base/fpenv.h"
#include "observer/qparams.h"
#include "observer/results.h"

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
    for (size_t i = 0; o && i < qobs_result_row_count; i++)
        n += qobs_result_parts(o, &qobs_result_rows[i]);
    return n;
}

int qobs_observer_result_info(const qobs_observer *o, size_t index, qobs_result *result, qobs_error *error)
{
    const int status = check_result(o, result, error);
    if (status != QOBS_OK)
        return status;
    struct result_item item = {.part = index};
    for (size_t i = 0; i < qobs_result_row_count; i++) {
        item.row = &qobs_result_rows[i];
        const size_t parts = qobs_result_parts(o, item.row);
        if (item.part < parts) {
            qobs_result_describe(o, item, result);
            return qobs_succeed(error);
        }
        item.part -= parts;
    }
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "index: is %zu, there are %zu results", index,
                     qobs_observer_result_count(o));
}

int qobs_observer_result_find(const qobs_observer *o, const char *name, qobs_result *result, qobs_error *error)
{
    struct result_item item;
    int status = check_result(o, result, error);
    if (status == QOBS_OK)
        status = qobs_result_find(o, name, &item, error);
    if (status != QOBS_OK)
        return status;
    qobs_result_describe(o, item, result);
    return qobs_succeed(error);
}

int qobs_observer_read(const qobs_observer *o, const char *name, void *out, size_t size, qobs_error *error)
{
    struct result_item item;
    qobs_result result = {.struct_size = sizeof result};
    int status = check_result(o, &result, error);
    if (status == QOBS_OK)
        status = qobs_result_find(o, name, &item, error);
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
    status = item.row->read(o, &(struct reading){item.part, out, size, error});
    fp_leave(mode);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

int qobs_observer_search_report(const qobs_observer *o, qobs_search_report *report, qobs_error *error)
{
    if (!o)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    const int status = qobs_search_report_check(report, error);
    if (status != QOBS_OK)
        return status;
    if (o->stages.range.ops->stage == SEARCH_NONE)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: %s does not search", o->config.preset->name);
    if (o->state.record.qparams == 0)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been searched yet");
    const fp_mode mode = fp_enter();
    qobs_search_report_of(&o->state.record, report);
    fp_leave(mode);
    return qobs_succeed(error);
}
