/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The table of results: one row for each name upstream has. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "number/convert.h"
#include "observer/searches.h"
#include "observer/qparams.h"
#include "observer/results.h"
#include "histogram/from_histogram.h"

static const struct shape one = {.ndim = 1, .extent = {1}};

static int require(bool observed, const char *name, qobs_error *error)
{
    return observed ? QOBS_OK : qobs_fail(error, QOBS_ERROR_NO_DATA, "%s: nothing has been observed yet", name);
}

static int check_ranges(const qobs_observer *o, const char *name, qobs_error *error)
{
    return require(!qobs_state_is_empty(&o->state), name, error);
}

static int copy(const struct reading *r, const void *from)
{
    memcpy(r->out, from, r->size);
    return QOBS_OK;
}

/* One number for each range. */
static struct result_type per_range(const qobs_observer *o, qobs_dtype dtype)
{
    return (struct result_type){dtype, o->state.layout.range};
}

static struct result_type list_of(qobs_dtype dtype, int64_t count)
{
    return (struct result_type){dtype, {.ndim = 1, .extent = {count}}};
}

static struct result_type ranges_type(const qobs_observer *o) { return per_range(o, o->state.layout.dtype); }

/* ---- min_val, max_val, amax -------------------------------------------------------------------------------------- */

static bool ranges_are_results(const qobs_observer *o)
{
    return qobs_has_ranges(&o->stages) && !o->stages.traits.hides_ranges && !o->stages.traits.bias;
}

static bool finds_min_max(const qobs_observer *o) { return qobs_range_finds(o->stages.range.ops, FOUND_MIN_MAX); }

static bool finds_amax(const qobs_observer *o) { return qobs_range_finds(o->stages.range.ops, FOUND_AMAX); }

static bool has_min_max(const qobs_observer *o)
{
    return finds_min_max(o) || (ranges_are_results(o) && !o->stages.accumulator.ops->symmetric);
}

static bool has_amax(const qobs_observer *o)
{
    return finds_amax(o) || (ranges_are_results(o) && o->stages.accumulator.ops->symmetric);
}

/* All ranges, or those that upstream keeps under one name. */
static struct result_type max_type(const qobs_observer *o)
{
    const struct layout *layout = &o->state.layout;
    struct result_type type = ranges_type(o);
    if (qobs_found_is_list(o))
        type.shape = one;
    else if (layout->keying == KEYING_GROUPS)
        type.shape = (struct shape){.ndim = 2, .extent = {layout->range.extent[0], 1}};
    else if (layout->keying == KEYING_BLOCKS)
        type.shape = (struct shape){.ndim = 2, .extent = {1, 1}};
    return type;
}

/* Upstream's minimum is the integer 0 if only a maximum is searched. */
static bool min_is_integer(const qobs_observer *o)
{
    const struct range_rule *rule = &o->stages.range;
    return finds_min_max(o) &&
           (rule->ops->histogram->zero_min || (rule->params.bins.symmetric && !qobs_found_is_list(o)));
}

static struct result_type min_type(const qobs_observer *o)
{
    struct result_type type = max_type(o);
    type.dtype = min_is_integer(o) ? QOBS_I64 : type.dtype;
    return type;
}

/* A column of groups, one block, or all ranges. */
static int read_part(const qobs_observer *o, const unsigned char *from, const struct reading *r)
{
    const struct layout *layout = &o->state.layout;
    const size_t element = qobs_dtype_size(layout->dtype);
    const size_t step = layout->keying == KEYING_GROUPS   ? qobs_groups_per_row(layout)
                        : layout->keying == KEYING_BLOCKS ? layout->qparams
                                                          : 1;
    for (size_t i = r->part, n = 0; i < layout->qparams; i += step, n++)
        memcpy((unsigned char *)r->out + n * element, from + i * element, element);
    return QOBS_OK;
}

static int read_min(const qobs_observer *o, const struct reading *r)
{
    float min;
    if (!finds_min_max(o))
        return read_part(o, o->state.ranges.min, r);
    RETURN_IF_FAILED(qobs_find_ranges(o, &min, NULL, NULL, NULL, r->error));
    const int64_t integer = min_is_integer(o) ? (int64_t)min : 0;
    return min_is_integer(o) ? copy(r, &integer) : copy(r, &min);
}

static int read_max(const qobs_observer *o, const struct reading *r)
{
    return finds_min_max(o) ? qobs_find_ranges(o, NULL, r->out, NULL, NULL, r->error)
                            : read_part(o, o->state.ranges.max, r);
}

static int check_amax(const qobs_observer *o, const char *name, qobs_error *error)
{
    const int status = check_ranges(o, name, error);
    return status == QOBS_OK && finds_amax(o) ? qobs_find_ranges(o, NULL, NULL, NULL, NULL, error) : status;
}

static int read_amax(const qobs_observer *o, const struct reading *r)
{
    if (finds_amax(o))
        return qobs_find_ranges(o, NULL, r->out, NULL, NULL, r->error);
    if (!o->stages.range.ops->state || !o->stages.range.ops->state->amax)
        return read_part(o, o->state.ranges.max, r);
    const struct search_state state = qobs_search_state(o);
    o->stages.range.ops->state->amax(&state, r->out);
    return QOBS_OK;
}

/* ---- Global range and scale -------------------------------------------------------------------------------------- */

static bool has_global_range(const qobs_observer *o)
{
    return o->stages.traits.global == GLOBAL_FROM_TENSORS || o->global_range.dtype != 0;
}

static int check_global_range(const qobs_observer *o, const char *name, qobs_error *error)
{
    return require(o->global_range.dtype != 0, name, error);
}

static struct result_type global_range_type(const qobs_observer *o) { return list_of(o->global_range.dtype, 1); }

static bool has_global_scale(const qobs_observer *o) { return o->stages.traits.global != GLOBAL_NONE; }

static int check_global_scale(const qobs_observer *o, const char *name, qobs_error *error)
{
    return require(!qobs_state_is_empty(&o->state) && qobs_global_scale_is_known(o), name, error);
}

static int read_global_scale(const qobs_observer *o, const struct reading *r)
{
    const float scale = qobs_compute_global_scale(o);
    return copy(r, &scale);
}

/* ---- scale, zero_point, init_scale ------------------------------------------------------------------------------- */

static bool has_qparams(const qobs_observer *o) { return qobs_formula_has_qparams(&o->stages.formula); }

static bool has_zero_point(const qobs_observer *o) { return has_qparams(o) && !o->stages.formula.params.no_zero_point; }

static int check_qparams(const qobs_observer *o, const char *name, qobs_error *error)
{
    (void)name;
    return qobs_write_qparams(o, NULL, NULL, error);
}

static struct result_type scale_type(const qobs_observer *o)
{
    struct result_type type = {.shape = qobs_scale_shape(o)};
    qobs_dtype unused;
    qobs_qparam_dtypes(o, &o->state.layout, !qobs_state_is_empty(&o->state), &type.dtype, &unused);
    return type;
}

static struct result_type zero_point_type(const qobs_observer *o)
{
    struct result_type type = {.shape = qobs_scale_shape(o)};
    qobs_dtype unused;
    qobs_qparam_dtypes(o, &o->state.layout, !qobs_state_is_empty(&o->state), &unused, &type.dtype);
    return type;
}

static struct result_type global_scale_type(const qobs_observer *o) { return list_of(scale_type(o).dtype, 1); }

static int read_scale(const qobs_observer *o, const struct reading *r)
{
    return qobs_write_qparams(o, r->out, NULL, r->error);
}

static int read_zero_point(const qobs_observer *o, const struct reading *r)
{
    return qobs_write_qparams(o, NULL, r->out, r->error);
}

static bool has_init_scale(const qobs_observer *o)
{
    return o->stages.range.ops->state && o->stages.range.ops->state->init_scale;
}

static struct result_type f32_ranges_type(const qobs_observer *o) { return per_range(o, QOBS_F32); }

static int read_init_scale(const qobs_observer *o, const struct reading *r)
{
    const struct search_state state = qobs_search_state(o);
    o->stages.range.ops->state->init_scale(&state, r->out);
    return QOBS_OK;
}

/* ---- Searches and importance ------------------------------------------------------------------------------------- */

static bool has_search(const qobs_observer *o) { return qobs_range_has_record(o->stages.range.ops); }

static int check_search(const qobs_observer *o, const char *name, qobs_error *error)
{
    return require(!qobs_state_is_empty(&o->state) && o->state.record.qparams > 0, name, error);
}

static struct result_type best_step_type(const qobs_observer *o) { return per_range(o, QOBS_I32); }

static struct result_type errors_type(const qobs_observer *o) { return per_range(o, QOBS_F64); }

static struct result_type stop_step_type(const qobs_observer *o)
{
    (void)o;
    return list_of(QOBS_I32, 1);
}

/* The error of every candidate, summed over all batches: a row for each qparam. */
static bool has_sums(const qobs_observer *o) { return qobs_range_has_sums(o->stages.range.ops); }

static struct result_type sums_type(const qobs_observer *o)
{
    const int64_t qparams = (int64_t)o->state.layout.qparams, steps = (int64_t)qobs_range_steps(&o->stages.range);
    return (struct result_type){QOBS_F64, {.ndim = 2, .extent = {qparams, steps}}};
}

static int check_optimal(const qobs_observer *o, const char *name, qobs_error *error)
{
    return require(o->state.optimal.qparams > 0, name, error);
}

/* Blocks of several groups have errors of whole rows. */
static bool has_row_errors(const qobs_observer *o)
{
    const struct optimal_params *p = &o->stages.range.params.optimal;
    const int64_t group = o->stages.granularity.params.group_size;
    return qobs_is_optimal(o) && o->stages.range.params.hessian && group > 0 && p->hessian_block > group;
}

static int check_row_errors(const qobs_observer *o, const char *name, qobs_error *error)
{
    return require(o->state.optimal.rows > 0, name, error);
}

static struct result_type row_errors_type(const qobs_observer *o)
{
    return list_of(QOBS_F64, (int64_t)o->state.optimal.rows);
}

static bool has_importance(const qobs_observer *o) { return o->stages.range.params.importance; }

static int check_importance(const qobs_observer *o, const char *name, qobs_error *error)
{
    return require(o->importance.columns > 0, name, error);
}

static struct result_type imatrix_sum_type(const qobs_observer *o) { return list_of(QOBS_F32, o->importance.columns); }

static struct result_type integer_type(const qobs_observer *o)
{
    (void)o;
    return list_of(QOBS_I64, 1);
}

static int read_imatrix_sum(const qobs_observer *o, const struct reading *r)
{
    qobs_importance_sums(&o->importance, r->out);
    return QOBS_OK;
}

static bool has_hessian(const qobs_observer *o) { return qobs_needs_gram(&o->stages); }

static int check_hessian(const qobs_observer *o, const char *name, qobs_error *error)
{
    return require(o->gram.sum != NULL, name, error);
}

/* (blocks, n, n); blocks shorter than n end with zeros. */
static struct result_type hessian_sum_type(const qobs_observer *o)
{
    const int64_t n = o->gram.block, blocks = o->gram.sum ? qobs_gram_blocks(&o->gram) : 0;
    return (struct result_type){QOBS_F64, {.ndim = 3, .extent = {blocks, n, n}}};
}

/* ---- Histograms -------------------------------------------------------------------------------------------------- */

/* ONNX Runtime's histograms. */
static bool has_hist(const qobs_observer *o)
{
    const struct histogram_ops *ops = o->stages.reduction.histogram.ops;
    return ops && ops->integer_counts;
}

/* torch.ao's HistogramObserver and its subclasses. */
static bool has_histogram(const qobs_observer *o) { return o->stages.range.ops->reads & READS_BINS; }

/* Quark's and Model-Optimizer's histograms, which grow by whole bins. */
static bool has_calib_hist(const qobs_observer *o)
{
    return o->stages.reduction.histogram.ops && !has_histogram(o) && !has_hist(o);
}

static struct result_type histogram_type(const qobs_observer *o)
{
    struct result_type type = ranges_type(o);
    type.shape.extent[type.shape.ndim++] = (int64_t)o->state.histogram.bins;
    return type;
}

static struct result_type calib_hist_type(const qobs_observer *o)
{
    return list_of(o->state.layout.dtype, (int64_t)o->state.histogram.bins);
}

static struct result_type bin_edges_type(const qobs_observer *o)
{
    return list_of(o->state.layout.dtype, (int64_t)o->state.histogram.bins + 1);
}

static int read_histogram(const qobs_observer *o, const struct reading *r)
{
    const struct histogram *h = &o->state.histogram;
    for (size_t k = 0; k < h->qparams * h->bins; k++)
        ((float *)r->out)[k] = (float)h->mass[k];
    return QOBS_OK;
}

static struct result_type hist_type(const qobs_observer *o)
{
    return list_of(QOBS_I64, (int64_t)o->state.histogram.bins);
}

static int read_hist(const qobs_observer *o, const struct reading *r)
{
    const struct histogram *h = &o->state.histogram;
    for (size_t k = 0; k < h->bins; k++) /* a saved state may hold any number */
        ((int64_t *)r->out)[k] = h->mass[k] < 0x1p63 ? (int64_t)h->mass[k] : INT64_MAX;
    return QOBS_OK;
}

static int read_bin_edges(const qobs_observer *o, const struct reading *r)
{
    qobs_read_edges(&o->state.histogram, r->out);
    return QOBS_OK;
}

static int read_new_min(const qobs_observer *o, const struct reading *r)
{
    return qobs_find_ranges(o, r->out, NULL, NULL, NULL, r->error);
}

static int read_new_max(const qobs_observer *o, const struct reading *r)
{
    return qobs_find_ranges(o, NULL, r->out, NULL, NULL, r->error);
}

/* ---- lowest, highest, avg, std: ONNX Runtime's TensorData ------------------------------------------------------- */

static bool has_lowest(const qobs_observer *o) { return o->stages.traits.range_is_lowest; }

static bool has_moments(const qobs_observer *o) { return qobs_range_finds(o->stages.range.ops, FOUND_MOMENTS); }

static int check_found(const qobs_observer *o, const char *name, qobs_error *error)
{
    const int status = check_ranges(o, name, error);
    return status == QOBS_OK && o->stages.range.ops->histogram ? qobs_find_ranges(o, NULL, NULL, NULL, NULL, error)
                                                               : status;
}

static int read_lowest(const qobs_observer *o, const struct reading *r)
{
    if (has_moments(o))
        return copy(r, &o->state.histogram.range[0].lo);
    return o->stages.range.ops->histogram ? read_new_min(o, r) : read_part(o, o->state.ranges.min, r);
}

static int read_highest(const qobs_observer *o, const struct reading *r)
{
    if (has_moments(o))
        return copy(r, &o->state.histogram.range[0].hi);
    return o->stages.range.ops->histogram ? read_new_max(o, r) : read_part(o, o->state.ranges.max, r);
}

/* ---- bias -------------------------------------------------------------------------------------------------------- */

static bool has_bias(const qobs_observer *o) { return o->stages.traits.bias; }

/* (max + min) / 2 with a rounding to the dtype for each; of a mean both are the mean. */
static int read_bias(const qobs_observer *o, const struct reading *r)
{
    const struct layout *layout = &o->state.layout;
    const size_t element = qobs_dtype_size(layout->dtype);
    for (size_t i = 0; i < layout->qparams; i++) {
        const double min = qobs_element(o->state.ranges.min + i * element, layout->dtype),
                     max = qobs_element(o->state.ranges.max + i * element, layout->dtype);
        qobs_put_element((unsigned char *)r->out + i * element, layout->dtype,
                         min == max ? max : qobs_round_to(layout->dtype, max + min) / 2);
    }
    return QOBS_OK;
}

/* ---- log_threshold ----------------------------------------------------------------------------------------------- */

static bool has_log_threshold(const qobs_observer *o) { return o->stages.traits.log_threshold; }

static struct result_type log_threshold_type(const qobs_observer *o)
{
    (void)o;
    return list_of(QOBS_F32, 1);
}

static int read_log_threshold(const qobs_observer *o, const struct reading *r)
{
    const float threshold = *(const float *)(const void *)o->state.ranges.max, result = (float)log2((double)threshold);
    return copy(r, &result);
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

static bool has_tokens(const qobs_observer *o) { return o->stages.traits.token_result != TOKENS_NONE; }

static int check_tokens(const qobs_observer *o, const char *name, qobs_error *error)
{
    const qobs_counts *c = &o->counts;
    return require((o->stages.traits.token_result == TOKENS_ALL ? c->tokens : c->batches + c->nonzero_tokens) > 0, name,
                   error);
}

static int read_tokens(const qobs_observer *o, const struct reading *r)
{
    const bool all = o->stages.traits.token_result == TOKENS_ALL;
    const int64_t tokens = (int64_t)(all ? o->counts.tokens : o->counts.nonzero_tokens);
    return copy(r, &tokens);
}

/* Results that a function computes, that are in the observer, and that it has an array of. */
#define COMPUTED(name, is_range, exists, check, type, read) {name, is_range, exists, check, type, read, 0, false}
#define STORED_NUMBER(name, exists, check, type, member)                                                               \
    {name, false, exists, check, type, NULL, offsetof(qobs_observer, member), false}
#define STORED_ARRAY(name, exists, check, type, member)                                                                \
    {name, false, exists, check, type, NULL, offsetof(qobs_observer, member), true}

/* The order is that of qobs_observer_result_info. */
const struct result_row qobs_result_rows[] = {
    COMPUTED("min_val", true, has_min_max, check_ranges, min_type, read_min),
    COMPUTED("max_val", true, has_min_max, check_ranges, max_type, read_max),
    COMPUTED("amax", false, has_amax, check_amax, ranges_type, read_amax),
    COMPUTED("init_scale", false, has_init_scale, check_ranges, f32_ranges_type, read_init_scale),
    STORED_NUMBER("global_min", has_global_range, check_global_range, global_range_type, global_range.min),
    STORED_NUMBER("global_max", has_global_range, check_global_range, global_range_type, global_range.max),
    COMPUTED("global_scale", false, has_global_scale, check_global_scale, global_scale_type, read_global_scale),
    COMPUTED("scale", false, has_qparams, check_qparams, scale_type, read_scale),
    COMPUTED("zero_point", false, has_zero_point, check_qparams, zero_point_type, read_zero_point),
    COMPUTED("num_observed_tokens", false, has_tokens, check_tokens, integer_type, read_tokens),
    STORED_ARRAY("best_step", has_search, check_search, best_step_type, state.record.best_step),
    STORED_ARRAY("errors", has_search, check_search, errors_type, state.record.error),
    STORED_ARRAY("errors_before", has_search, check_search, errors_type, state.record.error_before),
    STORED_ARRAY("error_sums", has_sums, check_search, sums_type, state.sums.sum),
    STORED_NUMBER("stop_step", has_search, check_search, stop_step_type, state.record.stop_step),
    STORED_ARRAY("error", qobs_is_optimal, check_optimal, errors_type, state.optimal.error),
    STORED_ARRAY("minmax_error", qobs_is_optimal, check_optimal, errors_type, state.optimal.minmax_error),
    STORED_ARRAY("energy", qobs_is_optimal, check_optimal, errors_type, state.optimal.energy),
    STORED_ARRAY("row_error", has_row_errors, check_row_errors, row_errors_type, state.optimal.row_error),
    STORED_ARRAY("start_row_error", has_row_errors, check_row_errors, row_errors_type, state.optimal.start_row_error),
    COMPUTED("imatrix_sum", false, has_importance, check_importance, imatrix_sum_type, read_imatrix_sum),
    STORED_NUMBER("imatrix_count", has_importance, check_importance, integer_type, importance.tokens),
    STORED_ARRAY("hessian_sum", has_hessian, check_hessian, hessian_sum_type, gram.sum),
    STORED_NUMBER("hessian_count", has_hessian, check_hessian, integer_type, gram.tokens),
    COMPUTED("histogram", false, has_histogram, check_ranges, histogram_type, read_histogram),
    COMPUTED("calib_hist", false, has_calib_hist, check_ranges, calib_hist_type, read_histogram),
    COMPUTED("calib_bin_edges", false, has_calib_hist, check_ranges, bin_edges_type, read_bin_edges),
    COMPUTED("log_threshold", false, has_log_threshold, check_ranges, log_threshold_type, read_log_threshold),
    COMPUTED("bias", false, has_bias, check_ranges, ranges_type, read_bias),
    COMPUTED("hist", false, has_hist, check_ranges, hist_type, read_hist),
    COMPUTED("hist_edges", false, has_hist, check_ranges, bin_edges_type, read_bin_edges),
    COMPUTED("lowest", false, has_lowest, check_found, ranges_type, read_lowest),
    COMPUTED("highest", false, has_lowest, check_found, ranges_type, read_highest),
    COMPUTED("avg", false, has_moments, check_found, ranges_type, read_new_min),
    COMPUTED("std", false, has_moments, check_found, ranges_type, read_new_max),
    COMPUTED("new_min", false, has_histogram, check_ranges, ranges_type, read_new_min),
    COMPUTED("new_max", false, has_histogram, check_ranges, ranges_type, read_new_max),
};

const size_t qobs_result_row_count = sizeof qobs_result_rows / sizeof *qobs_result_rows;
