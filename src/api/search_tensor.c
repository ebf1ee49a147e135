/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The public grid search, without an observer. */
#include <string.h>

#include "base/build.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/struct_size.h"
#include "config/stages.h"
#include "kernels/dispatch.h"
#include "plan/make_plan.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"
#include "search/grid_search.h"
#include "measure/reduce.h"

/* The arguments of a call, and what it allocates. */
struct search_call {
    const qobs_config *config;
    const qobs_tensor *value, *g_idx;
    const float *importance;
    bool recorded; /* the caller wants more than the ranges */
    struct runtime runtime;
    qobs_plan *plan;
    struct search_record record;
    float *weights;
    size_t weights_size;
};

static void release(struct search_call *d)
{
    qobs_search_record_release(&d->runtime, &d->record);
    qobs_release(&d->runtime, d->weights, d->weights_size);
    qobs_plan_destroy(d->plan);
}

/* Reads the arguments and checks those that do not need the tensor. */
static int open_search(qobs_search_args *a, const qobs_search_args *args, qobs_error *error)
{
    RETURN_IF_FAILED(ARGS_READ(qobs_search_args, a, args, runtime, error));
    RETURN_IF_FAILED(qobs_config_check(a->config, error));
    if (!qobs_config_searches_grid(a->config))
        RETURN_IF_FAILED(qobs_invalid(error, "config: %s does not search, allowed are the llmc presets *mse",
                                      a->config->preset->name));
    return a->report ? qobs_search_report_check(a->report, error) : QOBS_OK;
}

static int check_ranges(const qobs_search_args *a, const qobs_plan *plan, qobs_error *error)
{
    const size_t size = (size_t)plan->qparams * qobs_dtype_size(plan->dtype);
    RETURN_IF_FAILED(array_check("min", a->min, a->size, size, error));
    return array_check("max", a->max, a->size, size, error);
}

static int check_sizes(const qobs_search_args *a, const qobs_plan *plan, qobs_error *error)
{
    const size_t n = (size_t)plan->qparams;
    RETURN_IF_FAILED(check_ranges(a, plan, error));
    if (a->best_step || a->best_step_size > 0)
        RETURN_IF_FAILED(array_check("best_step", a->best_step, a->best_step_size, n * sizeof *a->best_step, error));
    if (a->errors || a->errors_size > 0)
        RETURN_IF_FAILED(array_check("errors", a->errors, a->errors_size, n * sizeof *a->errors, error));
    const int ndim = plan->value.ndim;
    const size_t columns = ndim > 0 ? (size_t)plan->value.shape[ndim - 1] : 1;
    return a->importance || a->importance_size > 0
               ? array_check("importance", a->importance, a->importance_size, columns * sizeof *a->importance, error)
               : QOBS_OK;
}

/* Makes column weights of the caller's importance. */
static int set_weights(struct search_call *d, qobs_error *error)
{
    const qobs_config *config = d->config;
    const enum strategy strategy = qobs_config_strategy(config);
    if (config->base_name != BASE_WEIGHT ||
        (strategy != STRATEGY_CHANNEL && strategy != STRATEGY_GROUP && strategy != STRATEGY_TENSOR_GROUP))
        return qobs_invalid(
            error,
            "importance: goes with base name weight and strategy channel, group or tensor_group, not with %s and %s",
            qobs_word_text(qobs_base_names, config->base_name), qobs_word_text(qobs_strategies, strategy));
    const int64_t columns = d->plan->value.shape[d->plan->value.ndim - 1];
    d->weights_size = (size_t)columns * sizeof *d->importance;
    d->weights = qobs_allocate(&d->runtime, d->weights_size);
    if (!d->weights)
        return qobs_no_memory(error, "importance: no memory for %zu bytes", d->weights_size);
    memcpy(d->weights, d->importance, d->weights_size);
    const enum importance_fault fault = qobs_importance_normalise(d->weights, columns);
    if (fault == IMPORTANCE_USABLE)
        return QOBS_OK;
    return qobs_invalid(error, "importance: is %s",
                        fault == IMPORTANCE_NOT_FINITE ? "not finite somewhere"
                        : fault == IMPORTANCE_NEGATIVE ? "negative somewhere"
                                                       : "0 everywhere");
}

static int check_data(const struct search_call *d, qobs_error *error)
{
    return d->plan->value.elements > 0 ? QOBS_OK : qobs_fail(error, QOBS_ERROR_NO_DATA, "value: has no elements");
}

/* Runs a search with the arguments that `search` has and those of the call. */
static int search_plan(const struct search_call *d, struct grid_search search, qobs_error *error)
{
    struct range_rule rule;
    struct formula formula;
    qobs_resolve_range(d->config, &rule);
    qobs_resolve_formula(d->config, &formula);
    search.runtime = &d->runtime;
    search.kernels = qobs_kernels_active();
    search.params = &rule.params.grid;
    search.formula = &formula;
    search.nonfinite = rule.params.nonfinite;
    search.plan = d->plan;
    search.data = d->plan->value.data;
    return qobs_grid_search(&search, error);
}

static int search(struct search_call *d, const qobs_search_args *a, qobs_error *error)
{
    struct grid_search search = {.global_scale = a->global_scale, .find_ranges = true, .min = a->min, .max = a->max};
    if (search.global_scale && qobs_config_is_current(d->config))
        return qobs_invalid(error, "global_scale: version current searches without one");
    RETURN_IF_FAILED(qobs_runtime_resolve(&d->runtime, a->runtime, error));
    RETURN_IF_FAILED(qobs_plan_create(&d->plan, d->config, d->value, d->g_idx, a->runtime, error));
    RETURN_IF_FAILED(check_sizes(a, d->plan, error));
    RETURN_IF_FAILED(check_data(d, error));
    if (d->importance)
        RETURN_IF_FAILED(set_weights(d, error));
    if (d->recorded)
        RETURN_IF_FAILED(qobs_search_record_reserve(&d->runtime, &d->record, (size_t)d->plan->qparams, error));
    search.column_weight = d->weights;
    search.record = &d->record;
    RETURN_IF_FAILED(search_plan(d, search, error));
    d->record.weighted = d->weights != NULL;
    return QOBS_OK;
}

int qobs_search(const qobs_search_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(searches, error);
    qobs_search_args a;
    RETURN_IF_FAILED(open_search(&a, args, error));
    struct search_call d = {.config = a.config,
                            .value = a.value,
                            .g_idx = a.g_idx,
                            .importance = a.importance,
                            .recorded = a.best_step || a.errors || a.report};
    const fp_mode mode = fp_enter();
    const int status = search(&d, &a, error);
    if (status == QOBS_OK) {
        if (a.best_step)
            memcpy(a.best_step, d.record.best_step, a.best_step_size);
        if (a.errors)
            memcpy(a.errors, d.record.error, a.errors_size);
        if (a.report)
            qobs_search_report_of(&d.record, a.report);
    }
    release(&d);
    fp_leave(mode);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

/* The name of an argument that a search of the complete tensor does not have, or NULL. */
static const char *superfluous(const qobs_search_args *a)
{
    return a->g_idx                                  ? "g_idx"
           : a->importance || a->importance_size > 0 ? "importance"
           : a->global_scale                         ? "global_scale"
           : a->best_step || a->best_step_size > 0   ? "best_step"
           : a->errors || a->errors_size > 0         ? "errors"
           : a->report                               ? "report"
                                                     : NULL;
}

static int search_globally(struct search_call *d, const qobs_search_args *a, qobs_error *error)
{
    struct nonfinite_count nonfinite = {0};
    RETURN_IF_FAILED(qobs_runtime_resolve(&d->runtime, a->runtime, error));
    RETURN_IF_FAILED(qobs_plan_new(&d->plan, &qobs_whole_tensor, d->value, NULL, &d->runtime, error));
    RETURN_IF_FAILED(check_ranges(a, d->plan, error));
    RETURN_IF_FAILED(check_data(d, error));
    RETURN_IF_FAILED(qobs_reduce_minmax(&d->runtime, qobs_kernels_active(), d->plan, d->plan->value.data,
                                        (enum nonfinite_mode)d->config->nonfinite, a->min, a->max, &nonfinite, error));
    return search_plan(d, (struct grid_search){.each_global_scale = true, .min = a->min, .max = a->max}, error);
}

int qobs_global_search(const qobs_search_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(searches, error);
    qobs_search_args a;
    RETURN_IF_FAILED(open_search(&a, args, error));
    if (superfluous(&a))
        return qobs_invalid(error, "%s: has no meaning for the complete tensor", superfluous(&a));
    if (qobs_config_is_current(a.config) || qobs_config_strategy(a.config) != STRATEGY_TENSOR_GROUP)
        return qobs_invalid(
            error, "config: only versions 2025-09 and 2025-10 with strategy tensor_group searches for a global scale");
    struct search_call d = {.config = a.config, .value = a.value};
    const fp_mode mode = fp_enter();
    const int status = search_globally(&d, &a, error);
    release(&d);
    fp_leave(mode);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}
