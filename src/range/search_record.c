/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "range/search_record.h"

#include "base/error.h"

static size_t record_size(size_t qparams) { return qparams * (2 * sizeof(double) + sizeof(int32_t)); }

int qobs_search_record_reserve(const struct runtime *runtime, struct search_record *record, size_t qparams,
                               qobs_error *error)
{
    double *workspace = qobs_allocate_state(runtime, record_size(qparams));
    if (!workspace)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "search: no memory for %zu bytes of errors", record_size(qparams));
    *record = (struct search_record){
        .qparams = qparams, .error = workspace, .error_before = workspace + qparams, .best_step = (int32_t *)(workspace + 2 * qparams)};
    return QOBS_OK;
}

void qobs_search_record_release(const struct runtime *runtime, struct search_record *record)
{
    qobs_release(runtime, record->error, record_size(record->qparams));
    *record = (struct search_record){0};
}

int qobs_search_report_check(const qobs_search_report *report, qobs_error *error)
{
    if (report && report->struct_size >= sizeof *report)
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "report: struct_size is %zu, expected %zu",
                     report ? report->struct_size : 0, sizeof *report);
}

void qobs_search_report_of(const struct search_record *record, qobs_search_report *report)
{
    *report = (qobs_search_report){.struct_size = report->struct_size,
                                   .steps = record->steps,
                                   .stop_step = record->stop_step,
                                   .weighted = record->weighted,
                                   .fallback = qobs_importance_fault_text(record->fault)};
    for (size_t i = 0; i < record->qparams; i++) {
        report->error_before += record->error_before[i];
        report->error += record->error[i];
    }
}
