/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "range/search_batch.h"

#include "base/error.h"

static size_t steps(const struct range_params *params) { return (size_t)params->grid.steps; }

const struct range_ops qobs_range_grid = {.search = SEARCH_BATCH, .steps = steps, .min_step = -1};

/* The first reason in upstream's order that does not depend on the importance itself. */
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
    return value->ndim == 0 || importance->columns != value->shape[value->ndim - 1] ? IMPORTANCE_COLUMNS : IMPORTANCE_USABLE;
}

int qobs_search_weights(const struct runtime *runtime, const struct grid_params *params, const struct view *value,
                        const struct importance *importance, struct search_record *record, float **weights, int64_t *columns,
                        qobs_error *error)
{
    *weights = NULL;
    *columns = importance->columns;
    if (!params->importance)
        return QOBS_OK;
    record->fault = early_fault(params, importance);
    if (record->fault == IMPORTANCE_USABLE) {
        const size_t size = (size_t)importance->columns * sizeof **weights;
        *weights = qobs_allocate(runtime, size);
        if (!*weights)
            return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "importance: no memory for %zu bytes", size);
        qobs_importance_means(importance, *weights);
        record->fault = qobs_importance_normalise(*weights, importance->columns);
        if (record->fault == IMPORTANCE_USABLE)
            record->fault = late_fault(params, value, importance);
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
