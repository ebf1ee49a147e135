/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The public grid search, without an observer. */

#include "base/fpenv.h"
#include "base/struct_size.h"
#include "config/resolve.h"
#include "kernels/dispatch.h"
#include "plan/make_plan.h"
#include "qobs/experimental.h"
#include "search/grid_search.h"
#include "measure/reduce.h"

/* A call: its arguments, and what it allocates. */
struct search_call {
    qobs_search_args args;
    struct runtime runtime;
    qobs_plan *plan;
    struct search_record record;
    float *weights;
    size_t weights_size;
};

/* Reads the arguments and checks those that do not need the tensor. */
static int open_search(struct search_call *c, const qobs_search_args *args, qobs_error *error)
{
    const qobs_search_args *a = &c->args;
    RETURN_IF_FAILED(ARGS_READ(qobs_search_args, &c->args, args, runtime, error));
    RETURN_IF_FAILED(qobs_config_check(a->config, error));
    if (!qobs_config_searches_grid(a->config))
        RETURN_IF_FAILED(qobs_invalid(error, "config: %s does not search, allowed are the llmc presets *mse",
                                      a->config->preset->name));
    if (a->report)
        RETURN_IF_FAILED(qobs_search_report_check(a->report, error));
    return qobs_runtime_resolve(&c->runtime, a->runtime, error);
}

/* Checks the results that a search of the complete tensor has, too. */
static int check_value(const struct search_call *c, qobs_error *error)
{
    const qobs_search_args *a = &c->args;
    const size_t size = (size_t)c->plan->qparams * qobs_dtype_size(c->plan->dtype);
    RETURN_IF_FAILED(array_check("min", a->min, a->size, size, error));
    RETURN_IF_FAILED(array_check("max", a->max, a->size, size, error));
    return c->plan->value.elements > 0 ? QOBS_OK : qobs_fail(error, QOBS_ERROR_NO_DATA, "value: has no elements");
}

static int check_arrays(const struct search_call *c, int64_t columns, qobs_error *error)
{
    const qobs_search_args *a = &c->args;
    const size_t n = (size_t)c->plan->qparams, size = (size_t)columns * sizeof *a->importance;
    if (a->best_step || a->best_step_size > 0)
        RETURN_IF_FAILED(array_check("best_step", a->best_step, a->best_step_size, n * sizeof *a->best_step, error));
    if (a->errors || a->errors_size > 0)
        RETURN_IF_FAILED(array_check("errors", a->errors, a->errors_size, n * sizeof *a->errors, error));
    if (a->importance || a->importance_size > 0)
        RETURN_IF_FAILED(array_check("importance", a->importance, a->importance_size, size, error));
    return QOBS_OK;
}

/* Makes column weights of the caller's importance. */
static int set_weights(struct search_call *c, int64_t columns, qobs_error *error)
{
    const qobs_config *config = c->args.config;
    const enum strategy strategy = qobs_config_strategy(config);
    if (config->base_name != BASE_WEIGHT ||
        (strategy != STRATEGY_CHANNEL && strategy != STRATEGY_GROUP && strategy != STRATEGY_TENSOR_GROUP))
        return qobs_invalid(
            error,
            "importance: goes with base name weight and strategy channel, group or tensor_group, not with %s and %s",
            qobs_word_text(qobs_base_names, config->base_name), qobs_word_text(qobs_strategies, strategy));
    c->weights_size = (size_t)columns * sizeof *c->weights;
    c->weights = qobs_allocate(&c->runtime, c->weights_size);
    RETURN_IF_FAILED(qobs_require_memory(c->weights, "importance", c->weights_size, error));
    memcpy(c->weights, c->args.importance, c->weights_size);
    const enum importance_fault fault = qobs_importance_normalise(c->weights, columns);
    if (fault == IMPORTANCE_USABLE)
        return QOBS_OK;
    return qobs_invalid(error, "importance: is %s",
                        fault == IMPORTANCE_NOT_FINITE ? "not finite somewhere"
                        : fault == IMPORTANCE_NEGATIVE ? "negative somewhere"
                                                       : "0 everywhere");
}

/* Runs a search with the arguments that `search` has and those of the call. */
static int search_plan(struct search_call *c, struct grid_search search, qobs_error *error)
{
    struct range_rule rule;
    struct formula formula;
    qobs_resolve_range(c->args.config, &rule);
    qobs_resolve_formula(c->args.config, &formula);
    search.runtime = &c->runtime;
    search.kernels = qobs_kernels_active();
    search.params = &rule.params.grid;
    search.formula = &formula;
    search.nonfinite = rule.params.nonfinite;
    search.plan = c->plan;
    search.data = c->plan->value.data;
    search.min = c->args.min;
    search.max = c->args.max;
    return qobs_grid_search(&search, error);
}

static int search(struct search_call *c, qobs_error *error)
{
    const qobs_search_args *a = &c->args;
    if (a->global_scale && qobs_config_is_current(a->config))
        return qobs_invalid(error, "global_scale: version current searches without one");
    RETURN_IF_FAILED(qobs_check_global_scale(a->global_scale, error));
    RETURN_IF_FAILED(qobs_plan_create(&c->plan, a->config, a->value, a->g_idx, a->runtime, error));
    const struct view *v = &c->plan->value;
    const int64_t columns = v->ndim > 0 ? v->shape[v->ndim - 1] : 1;
    RETURN_IF_FAILED(check_arrays(c, columns, error));
    RETURN_IF_FAILED(check_value(c, error));
    if (a->importance)
        RETURN_IF_FAILED(set_weights(c, columns, error));
    if (a->best_step || a->errors || a->report)
        RETURN_IF_FAILED(qobs_search_record_reserve(&c->runtime, &c->record, (size_t)c->plan->qparams, error));
    const struct grid_search with = {
        .column_weight = c->weights, .global_scale = a->global_scale, .find_ranges = true, .record = &c->record};
    RETURN_IF_FAILED(search_plan(c, with, error));
    c->record.weighted = c->weights != NULL;
    if (a->best_step)
        memcpy(a->best_step, c->record.best_step, a->best_step_size);
    if (a->errors)
        memcpy(a->errors, c->record.error, a->errors_size);
    if (a->report)
        qobs_search_report_of(&c->record, a->report);
    return QOBS_OK;
}

/* Fails for arguments that a search of the complete tensor does not have. */
static int check_global(const qobs_search_args *a, qobs_error *error)
{
    const char *extra = a->g_idx                                  ? "g_idx"
                        : a->importance || a->importance_size > 0 ? "importance"
                        : a->global_scale                         ? "global_scale"
                        : a->best_step || a->best_step_size > 0   ? "best_step"
                        : a->errors || a->errors_size > 0         ? "errors"
                        : a->report                               ? "report"
                                                                  : NULL;
    if (extra)
        return qobs_invalid(error, "%s: has no meaning for the complete tensor", extra);
    if (qobs_config_is_current(a->config) || qobs_config_strategy(a->config) != STRATEGY_TENSOR_GROUP)
        return qobs_invalid(
            error, "config: only versions 2025-09 and 2025-10 with strategy tensor_group searches for a global scale");
    return QOBS_OK;
}

static int search_globally(struct search_call *c, qobs_error *error)
{
    const qobs_search_args *a = &c->args;
    struct nonfinite_count nonfinite = {0};
    RETURN_IF_FAILED(check_global(a, error));
    RETURN_IF_FAILED(qobs_plan_new(&c->plan, &qobs_whole_tensor, a->value, NULL, &c->runtime, error));
    RETURN_IF_FAILED(check_value(c, error));
    RETURN_IF_FAILED(qobs_reduce_minmax(&c->runtime, qobs_kernels_active(), c->plan, c->plan->value.data,
                                        (enum nonfinite_mode)a->config->nonfinite, a->min, a->max, &nonfinite, error));
    return search_plan(c, (struct grid_search){.each_global_scale = true}, error);
}

static int run(const qobs_search_args *args, int (*search)(struct search_call *call, qobs_error *error),
               qobs_error *error)
{
    RETURN_IF_LEFT_OUT(searches, error);
    struct search_call c = {0};
    RETURN_IF_FAILED(open_search(&c, args, error));
    FP_SCOPE;
    const int status = search(&c, error);
    qobs_search_record_release(&c.runtime, &c.record);
    qobs_release(&c.runtime, c.weights, c.weights_size);
    qobs_plan_destroy(c.plan);
    return qobs_finish(status, error);
}

int qobs_search(const qobs_search_args *args, qobs_error *error) { return run(args, search, error); }

int qobs_global_search(const qobs_search_args *args, qobs_error *error) { return run(args, search_globally, error); }
