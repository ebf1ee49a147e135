/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "search/search_record.h"

#include "base/struct_size.h"

static size_t record_size(size_t qparams) { return qparams * (2 * sizeof(double) + sizeof(int32_t)); }

int qobs_search_record_reserve(const struct runtime *runtime, struct search_record *record, size_t qparams,
                               qobs_error *error)
{
    double *workspace = qobs_allocate_state(runtime, record_size(qparams));
    RETURN_IF_FAILED(qobs_require_memory(workspace, "search", record_size(qparams), error));
    *record = (struct search_record){.qparams = qparams,
                                     .error = workspace,
                                     .error_before = workspace + qparams,
                                     .best_step = (int32_t *)(workspace + 2 * qparams)};
    return QOBS_OK;
}

void qobs_search_record_release(const struct runtime *runtime, struct search_record *record)
{
    qobs_release(runtime, record->error, record_size(record->qparams));
    *record = (struct search_record){0};
}

int qobs_search_report_check(const qobs_search_report *report, qobs_error *error)
{
    return out_check("report", report, SIZE_THROUGH(qobs_search_report, fallback), error);
}

void qobs_search_report_of(const struct search_record *record, qobs_search_report *report)
{
    qobs_search_report own;
    memset(&own, 0, sizeof own);
    own.steps = record->steps;
    own.stop_step = record->stop_step;
    own.weighted = record->weighted;
    own.fallback = qobs_importance_fault_text(record->fault);
    for (size_t i = 0; i < record->qparams; i++) {
        own.error_before += record->error_before[i];
        own.error += record->error[i];
    }
    out_copy(report, &own, sizeof own);
}

/* ---- Column weights ---------------------------------------------------------------------------------------------- */

/* The first reason in upstream's order that is known before the importance is looked at. */
static enum importance_fault early_fault(const struct grid_params *params, const struct importance *importance)
{
    if (params->fault != IMPORTANCE_USABLE)
        return params->fault;
    return importance->tokens == 0 ? IMPORTANCE_NOT_OBSERVED : IMPORTANCE_USABLE;
}

static enum importance_fault late_fault(const struct grid_params *params, const struct view *value,
                                        const struct importance *importance)
{
    if (params->late_fault != IMPORTANCE_USABLE)
        return params->late_fault;
    return value->ndim == 0 || importance->columns != value->shape[value->ndim - 1] ? IMPORTANCE_COLUMNS
                                                                                    : IMPORTANCE_USABLE;
}

int qobs_search_weights(const struct runtime *runtime, const struct range_params *params, const struct view *value,
                        const struct importance *importance, struct search_record *record, float **weights,
                        int64_t *columns, qobs_error *error)
{
    *weights = NULL;
    *columns = importance->columns;
    if (!params->importance)
        return QOBS_OK;
    record->fault = early_fault(&params->grid, importance);
    if (record->fault == IMPORTANCE_USABLE) {
        const size_t size = (size_t)importance->columns * sizeof **weights;
        *weights = qobs_allocate(runtime, size);
        RETURN_IF_FAILED(qobs_require_memory(*weights, "importance", size, error));
        qobs_importance_means(importance, *weights);
        record->fault = qobs_importance_normalise(*weights, importance->columns);
        if (record->fault == IMPORTANCE_USABLE)
            record->fault = late_fault(&params->grid, value, importance);
        if (record->fault != IMPORTANCE_USABLE) {
            qobs_release(runtime, *weights, size);
            *weights = NULL;
        }
    }
    record->weighted = *weights != NULL;
    if (record->fault == IMPORTANCE_USABLE || !params->strict)
        return QOBS_OK;
    return qobs_fail(error, record->fault == IMPORTANCE_NOT_OBSERVED ? QOBS_ERROR_NO_DATA : QOBS_ERROR_INVALID_ARGUMENT,
                     "importance: cannot be used, %s (strict=true)", qobs_importance_fault_text(record->fault));
}
