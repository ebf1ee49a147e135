/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reading an observer: results by index and by name, and the report of a search. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "base/struct_size.h"
#include "base/tensor.h"
#include "observer/qparams.h"
#include "quantize/qparam_view.h"
#include "observer/results.h"

static int check_result(const qobs_observer *o, const qobs_result *result, qobs_error *error)
{
    if (!o)
        return qobs_invalid(error, "observer: is NULL");
    return out_check("result", result, SIZE_THROUGH(qobs_result, size), error);
}

static void write_result(const qobs_observer *o, struct result_item item, qobs_result *result)
{
    qobs_result own = {.struct_size = sizeof own};
    qobs_result_describe(o, item, &own);
    out_copy(result, &own, sizeof own);
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
    RETURN_IF_FAILED(check_result(o, result, error));
    struct result_item item = {.part = index};
    for (size_t i = 0; i < qobs_result_row_count; i++) {
        item.row = &qobs_result_rows[i];
        const size_t parts = qobs_result_parts(o, item.row);
        if (item.part < parts) {
            write_result(o, item, result);
            return qobs_succeed(error);
        }
        item.part -= parts;
    }
    return qobs_invalid(error, "index: is %zu, there are %zu results", index, qobs_observer_result_count(o));
}

int qobs_observer_result_find(const qobs_observer *o, const char *name, qobs_result *result, qobs_error *error)
{
    struct result_item item;
    RETURN_IF_FAILED(check_result(o, result, error));
    RETURN_IF_FAILED(qobs_result_find(o, name, &item, error));
    write_result(o, item, result);
    return qobs_succeed(error);
}

/* Finds a result that can be read now, and describes it. */
static int open_result(const qobs_observer *o, const char *name, struct result_item *item, qobs_result *result,
                       qobs_error *error)
{
    if (!o)
        return qobs_invalid(error, "observer: is NULL");
    const int status = qobs_result_find(o, name, item, error);
    if (status == QOBS_OK)
        qobs_result_describe(o, *item, result);
    return status;
}

int qobs_observer_read(const qobs_observer *o, const char *name, void *out, size_t size, qobs_error *error)
{
    struct result_item item;
    qobs_result result = {.struct_size = sizeof result};
    RETURN_IF_FAILED(open_result(o, name, &item, &result, error));
    RETURN_IF_FAILED(qobs_check_size(size, result.name, result.size, error));
    if (size == 0) /* out may be NULL */
        return qobs_succeed(error);
    if (!out)
        return qobs_invalid(error, "out: is NULL");
    const fp_mode mode = fp_enter();
    const int status = qobs_result_read(o, item, out, size, error);
    fp_leave(mode);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

static int64_t integer_at(const unsigned char *array, qobs_dtype dtype, size_t i)
{
    int64_t integer;
    if (dtype != QOBS_I64)
        return (int64_t)qobs_qparam_at(array, dtype, (int64_t)i);
    memcpy(&integer, array + i * sizeof integer, sizeof integer);
    return integer;
}

/* True if element i is an integer within the limits of I32 or I64. */
static bool is_integer(const unsigned char *array, qobs_dtype dtype, size_t i, qobs_dtype integer)
{
    if (dtype == QOBS_I64)
        return integer == QOBS_I64 || integer_at(array, dtype, i) == (int32_t)integer_at(array, dtype, i);
    const double x = qobs_qparam_at(array, dtype, (int64_t)i), limit = integer == QOBS_I64 ? 0x1p63 : 0x1p31;
    return x >= -limit && x < limit && x == floor(x);
}

/* Converts n elements. Fails before it writes. */
static int convert(const unsigned char *from, qobs_dtype dtype, size_t n, qobs_dtype to, unsigned char *out,
                   const char *name, qobs_error *error)
{
    for (size_t i = 0; (to == QOBS_I32 || to == QOBS_I64) && i < n; i++)
        if (!is_integer(from, dtype, i, to))
            return qobs_invalid(error, "dtype: is %s, but element %zu of %s is %.9g", qobs_dtype_name(to), i, name,
                                qobs_qparam_at(from, dtype, (int64_t)i));
    for (size_t i = 0; i < n; i++) {
        const double x = qobs_qparam_at(from, dtype, (int64_t)i);
        const float f32 = (float)x;
        const bool integer = to == QOBS_I32 || to == QOBS_I64;
        const int64_t i64 = integer ? integer_at(from, dtype, i) : 0;
        const int32_t i32 = (int32_t)i64;
        const void *element = to == QOBS_F32   ? (const void *)&f32
                              : to == QOBS_F64 ? (const void *)&x
                              : to == QOBS_I32 ? (const void *)&i32
                                               : (const void *)&i64;
        memcpy(out + i * qobs_dtype_size(to), element, qobs_dtype_size(to));
    }
    return QOBS_OK;
}

int qobs_observer_read_as(const qobs_observer *o, const char *name, qobs_dtype dtype, void *out, size_t size,
                          qobs_error *error)
{
    struct result_item item;
    qobs_result result = {.struct_size = sizeof result};
    if (dtype != QOBS_F32 && dtype != QOBS_F64 && dtype != QOBS_I32 && dtype != QOBS_I64)
        return qobs_invalid(error, "dtype: is %s (%d), allowed are F32, F64, I32, I64",
                            qobs_dtype_name(dtype) ? qobs_dtype_name(dtype) : "unknown", (int)dtype);
    RETURN_IF_FAILED(open_result(o, name, &item, &result, error));
    const size_t n = result.size / qobs_dtype_size(result.dtype);
    int status = array_check("out", out, size, n * qobs_dtype_size(dtype), error);
    if (status != QOBS_OK || n == 0)
        return status == QOBS_OK ? qobs_succeed(error) : status;
    unsigned char *own = qobs_allocate(&o->runtime, result.size);
    if (!own)
        return qobs_no_memory(error, "out: no memory for %zu bytes", result.size);
    const fp_mode mode = fp_enter();
    status = qobs_result_read(o, item, own, result.size, error);
    if (status == QOBS_OK)
        status = convert(own, result.dtype, n, dtype, out, result.name, error);
    fp_leave(mode);
    qobs_release(&o->runtime, own, result.size);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

/* Optimal scales are not steps of a search. */
static struct search_record record_of(const struct optimal_result *r)
{
    return (struct search_record){.qparams = r->qparams,
                                  .error = r->error,
                                  .error_before = r->minmax_error,
                                  .weighted = r->weighted,
                                  .fault = r->fault};
}

int qobs_observer_search_report(const qobs_observer *o, qobs_search_report *report, qobs_error *error)
{
    if (!o)
        return qobs_invalid(error, "observer: is NULL");
    RETURN_IF_FAILED(qobs_search_report_check(report, error));
    if (!qobs_range_searches(o->stages.range.ops))
        return qobs_invalid(error, "observer: %s does not search", o->config.preset->name);
    const bool optimal = o->stages.range.ops->optimal != NULL;
    if ((optimal ? o->state.optimal.qparams : o->state.record.qparams) == 0)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been searched yet");
    const fp_mode mode = fp_enter();
    const struct search_record record = optimal ? record_of(&o->state.optimal) : o->state.record;
    qobs_search_report_of(&record, report);
    fp_leave(mode);
    return qobs_succeed(error);
}
