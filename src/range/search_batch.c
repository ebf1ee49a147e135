/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "range/search_batch.h"

#include "base/error.h"
#include "observer/post_search.h"
#include "range/search.h"

/* ---- What is remembered ----------------------------------------------------------------------------------------------- */

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

/* ---- Settings --------------------------------------------------------------------------------------------------------- */

bool qobs_searches(const qobs_config *config)
{
    return qobs_preset_search(config->preset) != NULL || qobs_searches_kept(config);
}

bool qobs_weighs_columns(const qobs_config *config)
{
    const struct search_defaults *search = qobs_preset_search(config->preset);
    return search && search->importance;
}

/* The observer with importance looks at one candidate more, and at two at least. */
int qobs_search_steps(const qobs_config *config)
{
    if (qobs_searches_kept(config))
        return (int)qobs_kept_steps(config);
    const int steps = (int)(config->maxshrink * config->grid);
    return qobs_weighs_columns(config) ? (steps < 1 ? 1 : steps) + 1 : steps;
}

static struct search_settings settings_of(const qobs_config *config)
{
    const bool never_stop = qobs_weighs_columns(config) && config->patience == 0;
    return (struct search_settings){
        .steps = qobs_search_steps(config),
        .grid = config->grid,
        .patience = never_stop ? -1 : config->patience,
        .norm = config->norm,
        .expand = config->expand,
    };
}

/* ---- Importance ------------------------------------------------------------------------------------------------------- */

/* What can be said before the activations' numbers are looked at. */
static enum importance_fault fault_of(const qobs_config *config, const struct importance *importance)
{
    if (config->base_name != BASE_WEIGHT)
        return IMPORTANCE_NO_WEIGHT;
    if (qobs_config_strategy(config) == STRATEGY_TENSOR)
        return IMPORTANCE_STRATEGY;
    return importance->tokens == 0 ? IMPORTANCE_NOT_OBSERVED : IMPORTANCE_USABLE;
}

static enum importance_fault fault_of_shape(const qobs_config *config, const qobs_plan *plan,
                                            const struct importance *importance)
{
    if (qobs_config_strategy(config) == STRATEGY_BLOCK)
        return IMPORTANCE_STRATEGY;
    const struct view *v = &plan->value;
    return v->ndim == 0 || importance->columns != v->shape[v->ndim - 1] ? IMPORTANCE_COLUMNS : IMPORTANCE_USABLE;
}

int qobs_search_weights(const struct runtime *runtime, const qobs_config *config, const qobs_plan *plan,
                        const struct importance *importance, struct search_record *record, float **weights, int64_t *columns,
                        qobs_error *error)
{
    *weights = NULL;
    *columns = importance->columns;
    if (!qobs_weighs_columns(config))
        return QOBS_OK;
    record->fault = fault_of(config, importance);
    if (record->fault == IMPORTANCE_USABLE) {
        const size_t size = (size_t)importance->columns * sizeof **weights;
        *weights = qobs_allocate(runtime, size);
        if (!*weights)
            return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "importance: no memory for %zu bytes", size);
        qobs_importance_means(importance, *weights);
        record->fault = qobs_importance_normalise(*weights, importance->columns);
        if (record->fault == IMPORTANCE_USABLE)
            record->fault = fault_of_shape(config, plan, importance);
        if (record->fault != IMPORTANCE_USABLE) {
            qobs_release(runtime, *weights, size);
            *weights = NULL;
        }
    }
    record->weighted = *weights != NULL;
    if (record->fault == IMPORTANCE_USABLE || !config->strict)
        return QOBS_OK;
    return qobs_fail(error, record->fault == IMPORTANCE_NOT_OBSERVED ? QOBS_ERROR_NO_DATA : QOBS_ERROR_INVALID_ARGUMENT,
                     "importance: cannot be used, %s (strict=true)", qobs_importance_fault_text(record->fault));
}

/* ---- Search ----------------------------------------------------------------------------------------------------------- */

int qobs_search_batch(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_config *config,
                      const qobs_plan *plan, const unsigned char *data, const float *weights, const float *global_scale, bool find,
                      void *min, void *max, struct search_record *record, qobs_error *error)
{
    const struct search_settings settings = settings_of(config);
    struct search_report report = {
        .best_step = record->best_step, .error = record->error, .error_before = record->error_before};
    const int status =
        qobs_search_ranges(runtime, kernels, config, plan, &settings, data, weights, global_scale, find, min, max, &report, error);
    record->steps = settings.steps;
    record->stop_step = report.stop_step;
    return status;
}

int qobs_search_whole(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_config *config,
                      const qobs_tensor *value, void *min, void *max, qobs_error *error)
{
    static const struct axes none = {0};
    struct search_settings settings = settings_of(config);
    settings.optimize_global_scale = true;
    qobs_plan *plan;
    int status = qobs_plan_new_along(&plan, KEYING_NONE, value, &none, runtime, error);
    if (status != QOBS_OK)
        return status;
    status =
        qobs_search_ranges(runtime, kernels, config, plan, &settings, plan->value.data, NULL, NULL, false, min, max, NULL, error);
    qobs_plan_destroy(plan);
    return status;
}
