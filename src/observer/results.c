/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reading an observer: the table of results, one row for each name upstream has, results by name and by index, and
 * the report of a search. Ranges that upstream keeps
 * in parts are named min_val[default], min_val[1], ... for groups and min_val[block_0_0], ... for blocks. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fpenv.h"
#include "base/struct_size.h"
#include "histogram/from_histogram.h"
#include "observer/observer.h"
#include "quantize/qparam_view.h"

/* The destination of a part of a result. */
struct reading {
    size_t part;
    void *out;
    size_t size; /* of out, in bytes: the type's */
    qobs_error *error;
};

/* Dtypes of results beside those of elements. */
enum { OF_MIN = -4, OF_GLOBAL_RANGE, OF_SCALE, OF_ZERO_POINT, OF_RANGES };

struct result_row {
    const char *name;
    bool is_range;                                     /* upstream may keep it in parts: one for each block or group */
    bool (*exists)(const qobs_observer *observer);     /* for this configuration */
    bool (*observed)(const qobs_observer *observer);   /* there is a value now; NULL: always */
    int (*check)(const qobs_observer *, qobs_error *); /* fails if it cannot be computed; NULL: it can */
    int dtype;                                         /* a qobs_dtype, or one of those above */
    struct shape (*shape)(const qobs_observer *);      /* NULL: one number */
    int (*read)(const qobs_observer *observer, const struct reading *reading); /* NULL: the value is stored */
    size_t member;                                                             /* of the observer, where it is */
    bool is_array;                                                             /* the member points to it */
};

static bool is_observed(const qobs_observer *o) { return !qobs_state_is_empty(&o->state); }

static int copy(const struct reading *r, const void *from)
{
    memcpy(r->out, from, r->size);
    return QOBS_OK;
}

/* The number of groups or blocks in a row of the layout, whose ranges are two-dimensional. */
static size_t groups_per_row(const struct layout *layout)
{
    return (size_t)layout->range.extent[layout->range.ndim - 1];
}

static struct shape list_of(int64_t count) { return (struct shape){.ndim = 1, .extent = {count}}; }

/* One number for each range. */
static struct shape range_shape(const qobs_observer *o) { return o->state.layout.range; }

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
static struct shape part_shape(const qobs_observer *o)
{
    const struct layout *layout = &o->state.layout;
    if (qobs_found_is_list(o))
        return list_of(1);
    if (layout->keying < KEYING_GROUPS)
        return layout->range;
    return (struct shape){.ndim = 2, .extent = {layout->keying == KEYING_GROUPS ? layout->range.extent[0] : 1, 1}};
}

/* Upstream's minimum is the integer 0 if only a maximum is searched. */
static bool min_is_integer(const qobs_observer *o)
{
    const struct range_rule *rule = &o->stages.range;
    return finds_min_max(o) &&
           (rule->ops->histogram->zero_min || (rule->params.bins.symmetric && !qobs_found_is_list(o)));
}

/* A column of groups, one block, or all ranges. */
static int read_part(const qobs_observer *o, const unsigned char *from, const struct reading *r)
{
    const struct layout *layout = &o->state.layout;
    const size_t element = qobs_dtype_size(layout->dtype);
    const size_t step = layout->keying == KEYING_GROUPS   ? groups_per_row(layout)
                        : layout->keying == KEYING_BLOCKS ? layout->qparams
                                                          : 1;
    for (size_t i = r->part, n = 0; i < layout->qparams; i += step, n++)
        memcpy((unsigned char *)r->out + n * element, from + i * element, element);
    return QOBS_OK;
}

/* A bound that the rule finds in a histogram, or a measured one. */
static int read_bound(const qobs_observer *o, bool found, bool max, const struct reading *r)
{
    return found ? qobs_find_ranges(o, max ? NULL : r->out, max ? r->out : NULL, NULL, NULL, r->error)
                 : read_part(o, max ? o->state.ranges.max : o->state.ranges.min, r);
}

static int read_min(const qobs_observer *o, const struct reading *r)
{
    float min;
    if (!min_is_integer(o))
        return read_bound(o, finds_min_max(o), false, r);
    RETURN_IF_FAILED(qobs_find_ranges(o, &min, NULL, NULL, NULL, r->error));
    const int64_t integer = (int64_t)min;
    return copy(r, &integer);
}

static int read_max(const qobs_observer *o, const struct reading *r)
{
    return read_bound(o, finds_min_max(o), true, r);
}

/* Finds the range in the histogram. */
static int check_found(const qobs_observer *o, qobs_error *error)
{
    return o->stages.range.ops->histogram ? qobs_find_ranges(o, NULL, NULL, NULL, NULL, error) : QOBS_OK;
}

static int check_amax(const qobs_observer *o, qobs_error *error)
{
    return finds_amax(o) ? check_found(o, error) : QOBS_OK;
}

static int read_amax(const qobs_observer *o, const struct reading *r)
{
    const struct state_range *ops = o->stages.range.ops->state;
    if (!ops || !ops->amax)
        return read_bound(o, finds_amax(o), true, r);
    const struct search_state state = qobs_search_state(o);
    ops->amax(&state, r->out);
    return QOBS_OK;
}

/* ---- Global range and scale -------------------------------------------------------------------------------------- */

static bool has_global_range(const qobs_observer *o)
{
    return o->stages.traits.global == GLOBAL_FROM_TENSORS || o->global_range.dtype != 0;
}

static bool is_global_range_observed(const qobs_observer *o) { return o->global_range.dtype != 0; }

static bool has_global_scale(const qobs_observer *o) { return o->stages.traits.global != GLOBAL_NONE; }

static bool is_global_scale_known(const qobs_observer *o) { return is_observed(o) && qobs_global_scale_is_known(o); }

static int read_global_scale(const qobs_observer *o, const struct reading *r)
{
    const float scale = qobs_compute_global_scale(o);
    return copy(r, &scale);
}

/* ---- scale, zero_point, init_scale ------------------------------------------------------------------------------- */

static bool has_qparams(const qobs_observer *o) { return qobs_formula_has_qparams(&o->stages.formula); }

static bool has_zero_point(const qobs_observer *o) { return has_qparams(o) && !o->stages.formula.params.no_zero_point; }

static int check_qparams(const qobs_observer *o, qobs_error *error) { return qobs_write_qparams(o, NULL, NULL, error); }

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

static int read_init_scale(const qobs_observer *o, const struct reading *r)
{
    const struct search_state state = qobs_search_state(o);
    o->stages.range.ops->state->init_scale(&state, r->out);
    return QOBS_OK;
}

/* ---- Searches and importance ------------------------------------------------------------------------------------- */

static bool has_search(const qobs_observer *o) { return qobs_range_has_record(o->stages.range.ops); }

static bool is_searched(const qobs_observer *o) { return is_observed(o) && o->state.record.qparams > 0; }

/* The error of every candidate, summed over all batches: a row for each qparam. */
static bool has_sums(const qobs_observer *o) { return qobs_range_has_sums(o->stages.range.ops); }

static struct shape sums_shape(const qobs_observer *o)
{
    const int64_t steps = (int64_t)qobs_range_steps(&o->stages.range);
    return (struct shape){.ndim = 2, .extent = {(int64_t)o->state.layout.qparams, steps}};
}

static bool is_optimal_found(const qobs_observer *o) { return o->state.optimal.qparams > 0; }

/* Blocks of several groups have errors of whole rows. */
static bool has_row_errors(const qobs_observer *o)
{
    const struct range_params *p = &o->stages.range.params;
    const int64_t group = o->stages.granularity.params.group_size;
    return qobs_is_optimal(o) && p->hessian && group > 0 && p->hessian_block > group;
}

static bool is_rows_found(const qobs_observer *o) { return o->state.optimal.rows > 0; }

static struct shape rows_shape(const qobs_observer *o) { return list_of((int64_t)o->state.optimal.rows); }

static bool has_importance(const qobs_observer *o) { return o->stages.range.params.importance; }

static bool is_importance_observed(const qobs_observer *o) { return o->importance.columns > 0; }

static struct shape columns_shape(const qobs_observer *o) { return list_of(o->importance.columns); }

static int read_imatrix_sum(const qobs_observer *o, const struct reading *r)
{
    qobs_importance_sums(&o->importance, r->out);
    return QOBS_OK;
}

static bool has_hessian(const qobs_observer *o) { return qobs_needs_gram(&o->stages); }

static bool is_hessian_observed(const qobs_observer *o) { return o->gram.sum; }

/* (blocks, n, n); blocks shorter than n end with zeros. */
static struct shape hessian_shape(const qobs_observer *o)
{
    const int64_t n = o->gram.block, blocks = o->gram.sum ? qobs_gram_blocks(&o->gram) : 0;
    return (struct shape){.ndim = 3, .extent = {blocks, n, n}};
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

/* All bins of each range. */
static struct shape histogram_shape(const qobs_observer *o)
{
    struct shape shape = o->state.layout.range;
    shape.extent[shape.ndim++] = (int64_t)o->state.histogram.bins;
    return shape;
}

static struct shape bins_shape(const qobs_observer *o) { return list_of((int64_t)o->state.histogram.bins); }

static struct shape edges_shape(const qobs_observer *o) { return list_of((int64_t)o->state.histogram.bins + 1); }

static int read_histogram(const qobs_observer *o, const struct reading *r)
{
    const struct histogram *h = &o->state.histogram;
    for (size_t k = 0; k < h->qparams * h->bins; k++)
        ((float *)r->out)[k] = (float)h->mass[k];
    return QOBS_OK;
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

static int read_new_min(const qobs_observer *o, const struct reading *r) { return read_bound(o, true, false, r); }

static int read_new_max(const qobs_observer *o, const struct reading *r) { return read_bound(o, true, true, r); }

/* ---- lowest, highest, avg, std: ONNX Runtime's TensorData -------------------------------------------------------- */

static bool has_lowest(const qobs_observer *o) { return o->stages.traits.range_is_lowest; }

static bool has_moments(const qobs_observer *o) { return qobs_range_finds(o->stages.range.ops, FOUND_MOMENTS); }

static int read_lowest(const qobs_observer *o, const struct reading *r)
{
    return has_moments(o) ? copy(r, &o->state.histogram.range[0].lo)
                          : read_bound(o, o->stages.range.ops->histogram, false, r);
}

static int read_highest(const qobs_observer *o, const struct reading *r)
{
    return has_moments(o) ? copy(r, &o->state.histogram.range[0].hi)
                          : read_bound(o, o->stages.range.ops->histogram, true, r);
}

/* ---- bias, log_threshold, tokens --------------------------------------------------------------------------------- */

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

static bool has_log_threshold(const qobs_observer *o) { return o->stages.traits.log_threshold; }

static int read_log_threshold(const qobs_observer *o, const struct reading *r)
{
    const float threshold = *(const float *)(const void *)o->state.ranges.max, result = (float)log2((double)threshold);
    return copy(r, &result);
}

static bool has_tokens(const qobs_observer *o) { return o->stages.traits.token_result != TOKENS_NONE; }

static bool are_tokens_observed(const qobs_observer *o)
{
    const qobs_counts *c = &o->counts;
    return (o->stages.traits.token_result == TOKENS_ALL ? c->tokens : c->batches + c->nonzero_tokens) > 0;
}

static int read_tokens(const qobs_observer *o, const struct reading *r)
{
    const bool all = o->stages.traits.token_result == TOKENS_ALL;
    const int64_t tokens = (int64_t)(all ? o->counts.tokens : o->counts.nonzero_tokens);
    return copy(r, &tokens);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* Results that a function computes, that are in the observer, and that it has an array of. */
#define COMPUTED(name, exists, observed, check, dtype, shape, read)                                                    \
    {name, false, exists, observed, check, dtype, shape, read, 0, false}
#define STORED_NUMBER(name, exists, observed, dtype, member)                                                           \
    {name, false, exists, observed, NULL, dtype, NULL, NULL, offsetof(qobs_observer, member), false}
#define STORED_ARRAY(name, exists, observed, dtype, shape, member)                                                     \
    {name, false, exists, observed, NULL, dtype, shape, NULL, offsetof(qobs_observer, member), true}

/* The order is that of qobs_observer_result_info. */
static const struct result_row rows[] = {
    {"min_val", true, has_min_max, is_observed, NULL, OF_MIN, part_shape, read_min, 0, false},
    {"max_val", true, has_min_max, is_observed, NULL, OF_RANGES, part_shape, read_max, 0, false},
    COMPUTED("amax", has_amax, is_observed, check_amax, OF_RANGES, range_shape, read_amax),
    COMPUTED("init_scale", has_init_scale, is_observed, NULL, QOBS_F32, range_shape, read_init_scale),
    STORED_NUMBER("global_min", has_global_range, is_global_range_observed, OF_GLOBAL_RANGE, global_range.min),
    STORED_NUMBER("global_max", has_global_range, is_global_range_observed, OF_GLOBAL_RANGE, global_range.max),
    COMPUTED("global_scale", has_global_scale, is_global_scale_known, NULL, OF_SCALE, NULL, read_global_scale),
    COMPUTED("scale", has_qparams, NULL, check_qparams, OF_SCALE, qobs_scale_shape, read_scale),
    COMPUTED("zero_point", has_zero_point, NULL, check_qparams, OF_ZERO_POINT, qobs_scale_shape, read_zero_point),
    COMPUTED("num_observed_tokens", has_tokens, are_tokens_observed, NULL, QOBS_I64, NULL, read_tokens),
    STORED_ARRAY("best_step", has_search, is_searched, QOBS_I32, range_shape, state.record.best_step),
    STORED_ARRAY("errors", has_search, is_searched, QOBS_F64, range_shape, state.record.error),
    STORED_ARRAY("errors_before", has_search, is_searched, QOBS_F64, range_shape, state.record.error_before),
    STORED_ARRAY("error_sums", has_sums, is_searched, QOBS_F64, sums_shape, state.sums.sum),
    STORED_NUMBER("stop_step", has_search, is_searched, QOBS_I32, state.record.stop_step),
    STORED_ARRAY("error", qobs_is_optimal, is_optimal_found, QOBS_F64, range_shape, state.optimal.error),
    STORED_ARRAY("minmax_error", qobs_is_optimal, is_optimal_found, QOBS_F64, range_shape, state.optimal.minmax_error),
    STORED_ARRAY("energy", qobs_is_optimal, is_optimal_found, QOBS_F64, range_shape, state.optimal.energy),
    STORED_ARRAY("row_error", has_row_errors, is_rows_found, QOBS_F64, rows_shape, state.optimal.row_error),
    STORED_ARRAY("start_row_error", has_row_errors, is_rows_found, QOBS_F64, rows_shape, state.optimal.start_row_error),
    COMPUTED("imatrix_sum", has_importance, is_importance_observed, NULL, QOBS_F32, columns_shape, read_imatrix_sum),
    STORED_NUMBER("imatrix_count", has_importance, is_importance_observed, QOBS_I64, importance.tokens),
    STORED_ARRAY("hessian_sum", has_hessian, is_hessian_observed, QOBS_F64, hessian_shape, gram.sum),
    STORED_NUMBER("hessian_count", has_hessian, is_hessian_observed, QOBS_I64, gram.tokens),
    COMPUTED("histogram", has_histogram, is_observed, NULL, OF_RANGES, histogram_shape, read_histogram),
    COMPUTED("calib_hist", has_calib_hist, is_observed, NULL, OF_RANGES, bins_shape, read_histogram),
    COMPUTED("calib_bin_edges", has_calib_hist, is_observed, NULL, OF_RANGES, edges_shape, read_bin_edges),
    COMPUTED("log_threshold", has_log_threshold, is_observed, NULL, QOBS_F32, NULL, read_log_threshold),
    COMPUTED("bias", has_bias, is_observed, NULL, OF_RANGES, range_shape, read_bias),
    COMPUTED("hist", has_hist, is_observed, NULL, QOBS_I64, bins_shape, read_hist),
    COMPUTED("hist_edges", has_hist, is_observed, NULL, OF_RANGES, edges_shape, read_bin_edges),
    COMPUTED("lowest", has_lowest, is_observed, check_found, OF_RANGES, range_shape, read_lowest),
    COMPUTED("highest", has_lowest, is_observed, check_found, OF_RANGES, range_shape, read_highest),
    COMPUTED("avg", has_moments, is_observed, check_found, OF_RANGES, range_shape, read_new_min),
    COMPUTED("std", has_moments, is_observed, check_found, OF_RANGES, range_shape, read_new_max),
    COMPUTED("new_min", has_histogram, is_observed, NULL, OF_RANGES, range_shape, read_new_min),
    COMPUTED("new_max", has_histogram, is_observed, NULL, OF_RANGES, range_shape, read_new_max),
};

enum { ROWS = sizeof rows / sizeof *rows };

/* ---- By name and by index ---------------------------------------------------------------------------------------- */

static int check_row(const qobs_observer *o, const struct result_row *row, const char *name, qobs_error *error)
{
    if (row->observed && !row->observed(o))
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "%s: nothing has been observed yet", name);
    return row->check ? row->check(o, error) : QOBS_OK;
}

static size_t parts_of(const qobs_observer *o, const struct result_row *row)
{
    const struct layout *layout = &o->state.layout;
    if (!row->is_range || layout->keying < KEYING_GROUPS)
        return 1;
    return layout->keying == KEYING_GROUPS ? groups_per_row(layout) : layout->qparams;
}

/* The parts of a row that can be read now. */
static size_t parts_now(const qobs_observer *o, const struct result_row *row)
{
    return row->exists(o) && check_row(o, row, row->name, NULL) == QOBS_OK ? parts_of(o, row) : 0;
}

/* A result, and which part of it. */
struct item {
    const struct result_row *row;
    size_t part;
};

static void name_of(const qobs_observer *o, struct item item, char name[QOBS_RESULT_NAME])
{
    const struct layout *layout = &o->state.layout;
    const char *plain = item.row->name;
    if (!item.row->is_range || layout->keying == KEYING_NONE)
        snprintf(name, QOBS_RESULT_NAME, "%s%s", plain, item.row->is_range && o->stages.traits.plural_names ? "s" : "");
    else if (layout->keying == KEYING_BLOCKS)
        snprintf(name, QOBS_RESULT_NAME, "%s[block_%zu_%zu]", plain, item.part / groups_per_row(layout),
                 item.part % groups_per_row(layout));
    else if (item.part > 0)
        snprintf(name, QOBS_RESULT_NAME, "%s[%zu]", plain, item.part);
    else
        snprintf(name, QOBS_RESULT_NAME, "%s[default]", plain);
}

/* The index in the brackets of `name`; the caller compares the full name. */
static size_t part_in(const qobs_observer *o, const char *name)
{
    const struct layout *layout = &o->state.layout;
    const char *key = strchr(name, '[');
    if (!key || layout->keying == KEYING_NONE)
        return 0;
    if (layout->keying != KEYING_BLOCKS)
        return (size_t)strtoull(key + 1, NULL, 10);
    if (strncmp(key, "[block_", 7) != 0)
        return 0;
    const char *column = strrchr(key, '_');
    return (size_t)strtoull(key + 7, NULL, 10) * groups_per_row(layout) + (size_t)strtoull(column + 1, NULL, 10);
}

static qobs_dtype dtype_of(const qobs_observer *o, int dtype)
{
    qobs_dtype scale, zero_point;
    if (dtype == OF_SCALE || dtype == OF_ZERO_POINT) {
        qobs_qparam_dtypes(o, &o->state.layout, is_observed(o), &scale, &zero_point);
        return dtype == OF_SCALE ? scale : zero_point;
    }
    if (dtype == OF_MIN && min_is_integer(o))
        return QOBS_I64;
    return dtype > 0 ? (qobs_dtype)dtype : dtype == OF_GLOBAL_RANGE ? o->global_range.dtype : o->state.layout.dtype;
}

static void describe(const qobs_observer *o, struct item item, qobs_result *result)
{
    const qobs_dtype dtype = dtype_of(o, item.row->dtype);
    const struct shape shape = item.row->shape ? item.row->shape(o) : list_of(1);
    memset(result, 0, sizeof *result);
    result->dtype = dtype;
    result->ndim = shape.ndim;
    result->size = qobs_dtype_size(dtype);
    name_of(o, item, result->name);
    memcpy(result->shape, shape.extent, (size_t)shape.ndim * sizeof *result->shape);
    for (int d = 0; d < shape.ndim; d++)
        result->size *= (size_t)shape.extent[d];
}

/* Finds a result that can be read now, and describes it. */
static int find_result(const qobs_observer *o, const char *name, struct item *item, qobs_result *result,
                       qobs_error *error)
{
    char known[230] = "", own[QOBS_RESULT_NAME];
    size_t length = 0;
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    for (const struct result_row *row = rows; row < rows + ROWS; row++) {
        const bool exists = row->exists(o);
        *item = (struct item){.row = row, .part = name && row->is_range ? part_in(o, name) : 0};
        name_of(o, (struct item){.row = row}, own);
        if (exists && length < sizeof known)
            length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", length > 0 ? ", " : "", own);
        if (item->part < parts_of(o, row))
            name_of(o, *item, own);
        if (exists && name && strcmp(name, own) == 0) {
            RETURN_IF_FAILED(check_row(o, row, name, error));
            describe(o, *item, result);
            return QOBS_OK;
        }
    }
    return qobs_invalid(error, "name: '%s' is no result of %s; known are %s", name ? name : "(null)",
                        o->config.preset->name, *known ? known : "none");
}

static int read_item(const qobs_observer *o, struct item item, void *out, size_t size, qobs_error *error)
{
    const void *from = (const unsigned char *)o + item.row->member;
    if (item.row->read)
        return item.row->read(o, &(struct reading){item.part, out, size, error});
    if (item.row->is_array)
        memcpy(&from, from, sizeof from);
    memcpy(out, from, size);
    return QOBS_OK;
}

/* ---- Public ------------------------------------------------------------------------------------------------------ */

size_t qobs_observer_result_count(const qobs_observer *o)
{
    size_t n = 0;
    for (size_t i = 0; o && i < ROWS; i++)
        n += parts_now(o, &rows[i]);
    return n;
}

static int check_result(const qobs_observer *o, const qobs_result *result, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    return out_check("result", result, SIZE_THROUGH(qobs_result, size), error);
}

int qobs_observer_result_info(const qobs_observer *o, size_t index, qobs_result *result, qobs_error *error)
{
    qobs_result own;
    RETURN_IF_FAILED(check_result(o, result, error));
    struct item item = {.row = rows, .part = index};
    for (size_t parts; item.row < rows + ROWS && item.part >= (parts = parts_now(o, item.row)); item.row++)
        item.part -= parts;
    if (item.row == rows + ROWS)
        return qobs_invalid(error, "index: is %zu, there are %zu results", index, qobs_observer_result_count(o));
    describe(o, item, &own);
    out_copy(result, &own, sizeof own);
    return qobs_succeed(error);
}

int qobs_observer_result_find(const qobs_observer *o, const char *name, qobs_result *result, qobs_error *error)
{
    struct item item;
    qobs_result own;
    RETURN_IF_FAILED(check_result(o, result, error));
    RETURN_IF_FAILED(find_result(o, name, &item, &own, error));
    out_copy(result, &own, sizeof own);
    return qobs_succeed(error);
}

int qobs_observer_read(const qobs_observer *o, const char *name, void *out, size_t size, qobs_error *error)
{
    struct item item;
    qobs_result result;
    RETURN_IF_FAILED(find_result(o, name, &item, &result, error));
    RETURN_IF_FAILED(qobs_check_size(size, result.name, result.size, error));
    if (size == 0) /* out may be NULL */
        return qobs_succeed(error);
    RETURN_IF_FAILED(qobs_require(out, "out", error));
    FP_SCOPE;
    return qobs_finish(read_item(o, item, out, size, error), error);
}

/* False if element i is no integer of 64 bits. */
static bool integer_at(const unsigned char *array, qobs_dtype dtype, size_t i, int64_t *integer)
{
    const double x = qobs_qparam_at(array, dtype, (int64_t)i);
    const double limit = 0x1p63;
    const bool good = x >= -limit && x < limit && x == floor(x);
    if (dtype == QOBS_I64)
        memcpy(integer, array + i * sizeof *integer, sizeof *integer);
    else
        *integer = good ? (int64_t)x : 0;
    return dtype == QOBS_I64 || good;
}

/* Converts n elements. Fails before it writes. */
static int convert(const unsigned char *from, qobs_dtype dtype, size_t n, qobs_dtype to, unsigned char *out,
                   const char *name, qobs_error *error)
{
    const bool integers = to == QOBS_I32 || to == QOBS_I64;
    const size_t size = qobs_dtype_size(to);
    int64_t wide;
    for (size_t i = 0; integers && i < n; i++)
        if (!integer_at(from, dtype, i, &wide) || (to == QOBS_I32 && wide != (int32_t)wide))
            return qobs_invalid(error, "dtype: is %s, but element %zu of %s is %.9g", qobs_dtype_name(to), i, name,
                                qobs_qparam_at(from, dtype, (int64_t)i));
    for (size_t i = 0; integers && i < n; i++) {
        integer_at(from, dtype, i, &wide);
        const int32_t narrow = (int32_t)wide;
        memcpy(out + i * size, to == QOBS_I32 ? (const void *)&narrow : (const void *)&wide, size);
    }
    for (size_t i = 0; !integers && i < n; i++)
        qobs_put_element(out + i * size, to, qobs_qparam_at(from, dtype, (int64_t)i));
    return QOBS_OK;
}

int qobs_observer_read_as(const qobs_observer *o, const char *name, qobs_dtype dtype, void *out, size_t size,
                          qobs_error *error)
{
    struct item item;
    qobs_result result;
    if (dtype != QOBS_F32 && dtype != QOBS_F64 && dtype != QOBS_I32 && dtype != QOBS_I64)
        return qobs_invalid(error, "dtype: is %s (%d), allowed are F32, F64, I32, I64",
                            qobs_dtype_name(dtype) ? qobs_dtype_name(dtype) : "unknown", (int)dtype);
    RETURN_IF_FAILED(find_result(o, name, &item, &result, error));
    const size_t n = result.size / qobs_dtype_size(result.dtype);
    int status = array_check("out", out, size, n * qobs_dtype_size(dtype), error);
    if (status != QOBS_OK || n == 0)
        return qobs_finish(status, error);
    unsigned char *own = qobs_allocate(&o->runtime, result.size);
    RETURN_IF_FAILED(qobs_require_memory(own, "out", result.size, error));
    FP_SCOPE;
    status = read_item(o, item, own, result.size, error);
    if (status == QOBS_OK)
        status = convert(own, result.dtype, n, dtype, out, result.name, error);
    qobs_release(&o->runtime, own, result.size);
    return qobs_finish(status, error);
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
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    RETURN_IF_FAILED(qobs_search_report_check(report, error));
    if (!qobs_range_searches(o->stages.range.ops))
        return qobs_invalid(error, "observer: %s does not search", o->config.preset->name);
    const bool optimal = o->stages.range.ops->optimal != NULL;
    if ((optimal ? o->state.optimal.qparams : o->state.record.qparams) == 0)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been searched yet");
    FP_SCOPE;
    const struct search_record record = optimal ? record_of(&o->state.optimal) : o->state.record;
    qobs_search_report_of(&record, report);
    return qobs_succeed(error);
}
