/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Histograms of the caller: the public range finders read one, and a histogram observer takes one as its state. */

#include "base/fpenv.h"
#include "base/struct_size.h"
#include "histogram/from_histogram.h"
#include "number/convert.h"
#include "observer/observer.h"
#include "plan/make_plan.h"
#include "qobs/stateless.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static int open_counts(const qobs_tensor *tensor, const char *name, struct view *counts, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_view_of_tensor(counts, tensor, name, error));
    if (counts->ndim != 1 || counts->elements < 1)
        return qobs_invalid(error, "%s: has %d dimensions and %lld elements, allowed are 1 and above 0", name,
                            counts->ndim, (long long)counts->elements);
    if (counts->dtype != QOBS_F32 && counts->dtype != QOBS_F64 && counts->dtype != QOBS_I32 &&
        counts->dtype != QOBS_I64)
        return qobs_invalid(error, "%s: dtype is %s, allowed are F32, F64, I32, I64", name,
                            qobs_dtype_name(counts->dtype));
    return QOBS_OK;
}

/* Checks that there are at most `most` in total. */
static int sum_counts(const struct view *counts, const char *name, double most, double *sum, qobs_error *error)
{
    *sum = 0;
    for (int64_t i = 0; i < counts->elements; i++) {
        const double count = qobs_number_at(counts, i);
        *sum += count;
        if (!(count >= 0) || isinf(count) || *sum > most)
            return qobs_invalid(error, "%s: [%lld] is %g, allowed are finite numbers from 0%s", name, (long long)i,
                                count, isinf(most) ? "" : ", at most 2^53 in total");
    }
    return QOBS_OK;
}

/* Makes the view of the edges of that many bins, and checks those that are `step` bins apart. */
static int check_edges(const qobs_tensor *tensor, int64_t bins, bool f64, int64_t step, struct view *edges,
                       qobs_error *error)
{
    RETURN_IF_FAILED(qobs_view_of_tensor(edges, tensor, "bin_edges", error));
    if (edges->dtype != QOBS_F32 && !(f64 && edges->dtype == QOBS_F64))
        return qobs_invalid(error, "bin_edges: dtype is %s, allowed is F32%s", qobs_dtype_name(edges->dtype),
                            f64 ? " or F64" : "");
    if (edges->ndim != 1 || edges->elements != bins + 1)
        return qobs_invalid(error,
                            "bin_edges: has %d dimensions and %lld elements, a histogram of %lld bins needs 1 and %lld",
                            edges->ndim, (long long)edges->elements, (long long)bins, (long long)bins + 1);
    for (int64_t i = 0; i < bins; i += step) {
        const double edge = qobs_number_at(edges, i), next = qobs_number_at(edges, i + step);
        if (!(edge <= next) || isinf(edge) || isinf(next))
            return qobs_invalid(error, "bin_edges: [%lld] is %g and [%lld] is %g, they must be finite and ascend",
                                (long long)i, edge, (long long)(i + step), next);
    }
    return QOBS_OK;
}

/* ---- Range finders ----------------------------------------------------------------------------------------------- */

struct finder_call;

/* A public range finder. */
struct finder {
    const char *method;
    enum range_finder id;
    const char *allowed; /* families that have the method */
    bool uses_all_edges; /* otherwise the first and the last one */
    int (*find)(struct finder_call *call, qobs_range *found, qobs_error *error);
};

/* A call with its resolved arguments. */
struct finder_call {
    const struct finder *finder;
    qobs_range_args args;
    struct runtime runtime;
    struct bins_params bins;
    struct formula formula;
    struct histogram_view histogram;
    double *workspace; /* qobs_range_workspace() doubles */
    void *memory;      /* of histogram and workspace */
    size_t size;
};

static int check_call(struct finder_call *c, const qobs_range_args *args, const qobs_range *range, qobs_error *error)
{
    RETURN_IF_FAILED(ARGS_READ(qobs_range_args, &c->args, args, runtime, error));
    RETURN_IF_FAILED(out_check("range", range, SIZE_THROUGH(qobs_range, score), error));
    RETURN_IF_FAILED(qobs_config_check(c->args.config, error));
    if (qobs_config_has_finder(c->args.config, c->finder->id))
        return QOBS_OK;
    return qobs_invalid(error, "config: %s is not for %s, allowed are presets of %s", c->finder->method,
                        c->args.config->preset->name, c->finder->allowed);
}

static int open_call(struct finder_call *c, const qobs_range_args *args, const qobs_range *range, qobs_error *error)
{
    struct view counts, edges;
    double sum;
    RETURN_IF_FAILED(check_call(c, args, range, error));
    RETURN_IF_FAILED(open_counts(c->args.histogram, "histogram", &counts, error));
    RETURN_IF_FAILED(check_edges(c->args.bin_edges, counts.elements, false,
                                 c->finder->uses_all_edges ? 1 : counts.elements, &edges, error));
    RETURN_IF_FAILED(sum_counts(&counts, "histogram", INFINITY, &sum, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&c->runtime, c->args.runtime, error));
    qobs_resolve_bins(c->args.config, &c->bins);
    qobs_resolve_formula(c->args.config, &c->formula);
    const size_t bins = (size_t)counts.elements, doubles = bins + qobs_range_workspace(bins);
    c->size = doubles * sizeof(double) + (bins + 1) * sizeof(float);
    double *numbers = c->memory = qobs_allocate(&c->runtime, c->size);
    RETURN_IF_FAILED(qobs_require_memory(numbers, "histogram", c->size, error));
    c->workspace = numbers + bins;
    float *copy = (float *)(void *)(numbers + doubles);
    for (size_t i = 0; i < bins; i++)
        numbers[i] = qobs_number_at(&counts, (int64_t)i);
    for (size_t i = 0; i <= bins; i++)
        copy[i] = (float)qobs_number_at(&edges, (int64_t)i);
    c->histogram = (struct histogram_view){.bins = bins, .counts = numbers, .edges = copy};
    return QOBS_OK;
}

/* Edge i; those of equal bins if the method uses only the first and the last one. */
static double edge_at(const struct finder_call *c, int64_t i)
{
    const float *edges = c->histogram.edges;
    const double first = edges[0], last = edges[c->histogram.bins];
    return c->finder->uses_all_edges ? edges[i] : first + (last - first) * ((double)i / (double)c->histogram.bins);
}

/* The bins that hold the ends of the range. */
static void find_bins(const struct finder_call *c, qobs_range *found)
{
    const int64_t bins = (int64_t)c->histogram.bins;
    while (found->first_bin + 1 < bins && edge_at(c, found->first_bin + 1) <= found->min)
        found->first_bin++;
    found->last_bin = found->first_bin;
    while (found->last_bin + 1 < bins && edge_at(c, found->last_bin + 1) < found->max)
        found->last_bin++;
}

static int find_range(const struct finder *finder, const qobs_range_args *args, qobs_range *range, qobs_error *error)
{
    struct finder_call c = {.finder = finder};
    qobs_range found;
    memset(&found, 0, sizeof found);
    RETURN_IF_FAILED(open_call(&c, args, range, error));
    FP_SCOPE;
    const int status = finder->find(&c, &found, error);
    find_bins(&c, &found);
    qobs_release(&c.runtime, c.memory, c.size);
    RETURN_IF_FAILED(status);
    out_copy(range, &found, sizeof found);
    return qobs_succeed(error);
}

/* The range whose maximum is amax. */
static void set_range(const struct finder_call *c, float amax, qobs_range *found)
{
    found->min = c->bins.from_zero ? 0 : -amax;
    found->max = amax;
}

static int find_amax(struct finder_call *c, amax_finder *find, qobs_range *found, qobs_error *error)
{
    struct found_amax result = {0};
    c->bins.stride = c->args.stride;
    c->bins.start_bin = c->args.start_bin;
    const int status = find(&c->bins, &c->formula, &c->histogram, c->workspace, &result, error);
    set_range(c, result.amax, found);
    found->score = result.score;
    return status;
}

/* The share of the counts in the bins from the one that holds min to the one that ends at max, in percent. */
static double share_within(const struct histogram_view *h, float min, float max)
{
    double all = 0, within = 0;
    for (size_t i = 0; i < h->bins; i++) {
        all += h->counts[i];
        within += h->edges[i + 1] > min && h->edges[i] < max ? h->counts[i] : 0;
    }
    return all > 0 ? 100 * within / all : 0;
}

static int find_by_percentile(struct finder_call *c, qobs_range *found, qobs_error *error)
{
    const double percentile = c->args.percentile;
    if (!(percentile >= 0 && percentile <= 100))
        return qobs_invalid(error, "percentile: is %g, allowed are numbers from 0 to 100", percentile);
    if (c->bins.of_magnitudes)
        set_range(c, qobs_percentile_modelopt(&c->histogram, percentile), found);
    else
        qobs_percentile(&c->histogram, c->bins.symmetric, percentile, &found->min, &found->max);
    found->score = share_within(&c->histogram, found->min, found->max);
    return QOBS_OK;
}

static int find_by_l2_norm(struct finder_call *c, qobs_range *found, qobs_error *error)
{
    const struct histogram_view *h = &c->histogram;
    float *counts = (float *)(void *)c->workspace;
    (void)error;
    for (size_t i = 0; i < h->bins; i++)
        counts[i] = (float)h->counts[i];
    found->score = qobs_non_linear_search(counts, h->bins, h->edges[0], h->edges[h->bins], c->bins.numbers,
                                          counts + h->bins, &found->min, &found->max);
    return QOBS_OK;
}

static int find_by_entropy(struct finder_call *c, qobs_range *found, qobs_error *error)
{
    return find_amax(c, qobs_amax_by_entropy, found, error);
}

static int find_by_mse(struct finder_call *c, qobs_range *found, qobs_error *error)
{
    return find_amax(c, qobs_amax_by_mse, found, error);
}

int qobs_range_by_percentile(const qobs_range_args *args, qobs_range *range, qobs_error *error)
{
    static const struct finder row = {"percentile", FINDER_PERCENTILE, "quark and modelopt", true, find_by_percentile};
    return find_range(&row, args, range, error);
}

int qobs_range_by_l2_norm(const qobs_range_args *args, qobs_range *range, qobs_error *error)
{
    static const struct finder row = {"l2_norm", FINDER_L2_NORM, "torch", false, find_by_l2_norm};
    return find_range(&row, args, range, error);
}

int qobs_range_by_entropy(const qobs_range_args *args, qobs_range *range, qobs_error *error)
{
    static const struct finder row = {"entropy", FINDER_ENTROPY, "modelopt", true, find_by_entropy};
    return find_range(&row, args, range, error);
}

int qobs_range_by_mse(const qobs_range_args *args, qobs_range *range, qobs_error *error)
{
    static const struct finder row = {"mse", FINDER_MSE, "quark and modelopt", true, find_by_mse};
    return find_range(&row, args, range, error);
}

/* ---- The state of a histogram observer --------------------------------------------------------------------------- */

#define MOST_BATCHES (UINT64_C(1) << 62) /* more could wrap when states merge */
#define MOST_COUNTS 0x1p53               /* a mass is a double */

static bool has_edges(const struct bin_range *range, const struct view *edges)
{
    const int64_t bins = edges->elements - 1;
    for (int64_t i = 0; i <= bins; i++)
        if ((double)qobs_bin_edge(range, (size_t)bins, (size_t)i) != qobs_number_at(edges, i))
            return false;
    return true;
}

/* The range whose edges those are: of a linspace, or of an arange with their first step. */
static int range_of_edges(const struct view *edges, bool stored, struct bin_range *range, qobs_error *error)
{
    *range = (struct bin_range){.lo = (float)qobs_number_at(edges, 0),
                                .hi = (float)qobs_number_at(edges, edges->elements - 1)};
    if (stored || has_edges(range, edges))
        return QOBS_OK;
    range->step = (float)qobs_number_at(edges, 1) - range->lo;
    if (has_edges(range, edges))
        return QOBS_OK;
    return qobs_invalid(error, "bin_edges: are neither those of linspace nor those of arange in float32");
}

static int read_range(const qobs_observer *o, const qobs_histogram_state *h, int64_t bins, struct view *edges,
                      struct bin_range *range, qobs_error *error)
{
    const bool stored = o->stages.reduction.histogram.ops->stores_edges;
    if (h->bin_edges) {
        RETURN_IF_FAILED(check_edges(h->bin_edges, bins, true, 1, edges, error));
        return range_of_edges(edges, stored, range, error);
    }
    if (stored)
        return qobs_invalid(error, "bin_edges: is NULL, %s stores them", o->config.preset->name);
    if (!(h->min <= h->max) || isinf(h->min) || isinf(h->max))
        return qobs_invalid(error, "min, max: %g to %g is no range of finite numbers", (double)h->min, (double)h->max);
    *range = (struct bin_range){.lo = h->min, .hi = h->max};
    return QOBS_OK;
}

static int check_bins(const struct histogram_rule *rule, int64_t bins, qobs_error *error)
{
    const int64_t set = (int64_t)rule->params.bins;
    if (bins > QOBS_MOST_BINS)
        return qobs_invalid(error, "counts: has %lld elements, at most %d are allowed", (long long)bins,
                            QOBS_MOST_BINS);
    if (rule->ops->same_bins && bins != set)
        return qobs_invalid(error, "counts: has %lld elements, the setting bins is %lld", (long long)bins,
                            (long long)set);
    return QOBS_OK;
}

/* The layout that a batch gives: histogram observers have one range in F32. */
static int find_layout(const qobs_observer *o, struct layout *layout, qobs_error *error)
{
    static const float element = 0;
    static const int64_t shape[] = {1};
    const qobs_tensor value = {sizeof value, &element, QOBS_F32, 1, shape, NULL};
    qobs_plan plan;
    RETURN_IF_FAILED(qobs_plan_make(&plan, &o->stages.granularity, &value, NULL, &o->runtime, error));
    *layout = qobs_layout_of(&o->stages, &plan);
    qobs_plan_unmake(&plan);
    return QOBS_OK;
}

static int make_state(const qobs_observer *o, const struct view *counts, const struct view *edges,
                      const struct bin_range *range, struct state *state, qobs_error *error)
{
    const struct histogram_ops *ops = o->stages.reduction.histogram.ops;
    RETURN_IF_FAILED(find_layout(o, &state->layout, error));
    RETURN_IF_FAILED(qobs_allocate_ranges(&o->runtime, &state->ranges, QOBS_F32, 1, error));
    RETURN_IF_FAILED(qobs_histogram_allocate(&o->runtime, ops, &state->histogram, 1, (size_t)counts->elements, error));
    for (int64_t i = 0; i < counts->elements; i++)
        state->histogram.mass[i] = qobs_number_at(counts, i);
    for (int64_t i = 0; state->histogram.edges && i <= counts->elements; i++)
        state->histogram.edges[i] = qobs_number_at(edges, i);
    state->histogram.range[0] = *range;
    qobs_put_element(state->ranges.min, QOBS_F32, (double)range->lo);
    qobs_put_element(state->ranges.max, QOBS_F32, (double)range->hi);
    return QOBS_OK;
}

int qobs_observer_set_histogram(qobs_observer *o, const qobs_histogram_state *given, qobs_error *error)
{
    qobs_histogram_state h;
    struct view counts, edges = {0};
    struct bin_range range;
    struct state state = {0};
    double elements;
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    if (!o->stages.reduction.histogram.ops)
        return qobs_invalid(error, "observer: %s has no histogram", o->config.preset->name);
    RETURN_IF_FAILED(STRUCTURE_READ("histogram", qobs_histogram_state, &h, given, batches, error));
    if (h.batches > MOST_BATCHES)
        return qobs_invalid(error, "batches: is %llu, at most %llu are allowed", (unsigned long long)h.batches,
                            (unsigned long long)MOST_BATCHES);
    RETURN_IF_FAILED(open_counts(h.counts, "counts", &counts, error));
    RETURN_IF_FAILED(check_bins(&o->stages.reduction.histogram, counts.elements, error));
    RETURN_IF_FAILED(sum_counts(&counts, "counts", MOST_COUNTS, &elements, error));
    RETURN_IF_FAILED(read_range(o, &h, counts.elements, &edges, &range, error));
    const int status = make_state(o, &counts, &edges, &range, &state, error);
    if (status != QOBS_OK) {
        qobs_state_release(&o->runtime, &state);
        return status;
    }
    qobs_observer_reset(o);
    o->state = state;
    o->counts = (qobs_counts){
        .struct_size = o->counts.struct_size, .batches = h.batches ? h.batches : 1, .elements = (uint64_t)elements};
    return qobs_succeed(error);
}
