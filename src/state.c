/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* An observer as bytes.
 *
 * A saved state, all numbers little-endian: "qobs", u32 format version, u64 size of the whole, u32 length of the settings
 * and their text (the preset's name, then "key=value", a line each), u64 batches, elements, NaN, infinite, tokens, tokens with
 * an element other than 0, u32 dtype of the range of the whole (0: there is none), its minimum and maximum, u32 dtype of the
 * ranges (0: there are none); if there are, the shape of the ranges and the shape of scale (u32 ndim, u64 extents), u32 under
 * which names (enum ids), the minima, the maxima, u32 number of candidates voted for and of each u64 votes, scales, zero points; for presets that search u64
 * columns and tokens of importance and f64 sums of squares, u64 qparams searched, and if there are any u32 steps, stop step, weighted or
 * not and why not, and of each i32 best step, f64 error, f64 error before; for presets with histograms, if there are ranges,
 * u64 bins, of each histogram f32 first edge, last edge and step, then of each the f64 masses and, with
 * torch_hist=false, the f64 edges; for those of Model-Optimizer that
 * search u32 dtype and u64 elements of the amax given, if any its shape, f32 amax, u64 error weights given, f32 weights and, where
 * they are summed, f64 errors; and the FNV-1a hash of all that. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "observer.h"
#include "search/kept.h"
#include "statistic/keep.h"
#include "tensor.h"

enum { FORMAT = 2, MOST_TEXT = 4096, HASH = 8 };

/* Elements in the machine's order to little-endian or back. */
static void copy_elements(unsigned char *to, const unsigned char *from, size_t n, size_t size)
{
    const uint16_t probe = 1;
    const bool little = *(const unsigned char *)&probe == 1;
    for (size_t i = 0; !little && i < n * size; i++)
        to[i] = from[i / size * size + (size - 1 - i % size)];
    if (little && n > 0)
        memcpy(to, from, n * size);
}

static uint64_t hash(const unsigned char *p, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* ---- Save ------------------------------------------------------------------------------------------------------------- */

/* Where bytes go; with `to` NULL they are only counted. */
struct sink {
    unsigned char *to;
    size_t size;
};

static void put(struct sink *sink, uint64_t value, size_t bytes)
{
    for (size_t i = 0; sink->to && i < bytes; i++)
        sink->to[sink->size + i] = (unsigned char)(value >> 8 * i);
    sink->size += bytes;
}

static void put_elements(struct sink *sink, const void *from, size_t n, size_t size)
{
    if (sink->to)
        copy_elements(sink->to + sink->size, from, n, size);
    sink->size += n * size;
}

static void put_shape(struct sink *sink, const struct shape *shape)
{
    put(sink, (uint64_t)shape->ndim, 4);
    for (int d = 0; d < shape->ndim; d++)
        put(sink, (uint64_t)shape->extent[d], 8);
}

/* The preset and its settings. Returns the length. */
static size_t describe(const qobs_config *config, char text[MOST_TEXT])
{
    size_t n = (size_t)snprintf(text, MOST_TEXT, "%s\n", config->preset->name);
    for (size_t i = 0; i < qobs_config_key_count(config); i++) {
        char value[64] = "";
        qobs_config_get(config, qobs_config_key(config, i), value, sizeof value, NULL);
        n += (size_t)snprintf(text + n, MOST_TEXT - n, "%s=%s\n", qobs_config_key(config, i), value);
    }
    return n;
}

static void put_statistics(struct sink *sink, const qobs_observer *o)
{
    const struct layout *layout = &o->layout;
    put(sink, o->counts.batches, 8);
    put(sink, o->counts.elements, 8);
    put(sink, o->counts.nan, 8);
    put(sink, o->counts.inf, 8);
    put(sink, o->counts.tokens, 8);
    put(sink, o->counts.nonzero_tokens, 8);
    put(sink, (uint64_t)o->whole.dtype, 4);
    put_elements(sink, o->whole.min, o->whole.dtype != 0, qobs_dtype_size(o->whole.dtype));
    put_elements(sink, o->whole.max, o->whole.dtype != 0, qobs_dtype_size(o->whole.dtype));
    put(sink, qobs_has_ranges(o) ? (uint64_t)layout->dtype : 0, 4);
    if (!qobs_has_ranges(o))
        return;
    put_shape(sink, &layout->range);
    put_shape(sink, &layout->scale);
    put(sink, (uint64_t)layout->ids, 4);
    put_elements(sink, o->kept.state.min, layout->qparams, qobs_dtype_size(layout->dtype));
    put_elements(sink, o->kept.state.max, layout->qparams, qobs_dtype_size(layout->dtype));
}

static void put_votes(struct sink *sink, const struct votes *votes)
{
    put(sink, votes->candidates, 4);
    for (size_t i = 0; i < votes->candidates; i++) {
        put(sink, votes->count[i], 8);
        put_elements(sink, qobs_vote_scale(votes, i), votes->n, 4);
        put_elements(sink, qobs_vote_zero_point(votes, i), votes->n, 4);
    }
}

/* Only for presets that search. */
static void put_search(struct sink *sink, const qobs_observer *o)
{
    const struct importance *importance = &o->importance;
    const struct search_record *searched = &o->searched;
    put(sink, (uint64_t)importance->columns, 8);
    put(sink, importance->tokens, 8);
    put_elements(sink, importance->sum, (size_t)importance->columns, sizeof *importance->sum);
    put(sink, searched->qparams, 8);
    if (searched->qparams == 0)
        return;
    put(sink, (uint64_t)searched->steps, 4);
    put(sink, (uint64_t)searched->stop_step, 4);
    put(sink, searched->weighted, 4);
    put(sink, (uint64_t)searched->fault, 4);
    put_elements(sink, searched->best_step, searched->qparams, sizeof *searched->best_step);
    put_elements(sink, searched->error, searched->qparams, sizeof *searched->error);
    put_elements(sink, searched->error_before, searched->qparams, sizeof *searched->error_before);
}

/* Only for presets with histograms. */
static void put_histogram(struct sink *sink, const struct histogram *h)
{
    put(sink, h->bins, 8);
    for (size_t q = 0; q < h->qparams; q++) {
        put_elements(sink, &h->range[q].lo, 1, sizeof(float));
        put_elements(sink, &h->range[q].hi, 1, sizeof(float));
        put_elements(sink, &h->range[q].step, 1, sizeof(float));
    }
    put_elements(sink, h->mass, h->qparams * h->bins, sizeof *h->mass);
    if (h->edges)
        put_elements(sink, h->edges, h->bins + 1, sizeof *h->edges);
}

static bool is_told(const qobs_observer *o)
{
    return o->config.preset->family == FAMILY_TRT && qobs_searches_kept(&o->config);
}

/* Only for presets of Model-Optimizer that search. */
static void put_told(struct sink *sink, const qobs_observer *o)
{
    const struct given *g = &o->given;
    put(sink, g->dtype, 4);
    put(sink, g->count, 8);
    if (g->count > 0)
        put_shape(sink, &g->shape);
    put_elements(sink, g->amax, g->count, sizeof *g->amax);
    put(sink, g->weights, 8);
    put_elements(sink, g->weight, g->weights, sizeof *g->weight);
    put_elements(sink, o->kept.sums, o->kept.sums_count, sizeof *o->kept.sums);
}

static void put_all(struct sink *sink, const qobs_observer *o, size_t size)
{
    char text[MOST_TEXT];
    const size_t length = describe(&o->config, text);
    put_elements(sink, "qobs", 4, 1);
    put(sink, FORMAT, 4);
    put(sink, size, 8);
    put(sink, length, 4);
    put_elements(sink, text, length, 1);
    put_statistics(sink, o);
    if (qobs_has_ranges(o))
        put_votes(sink, &o->kept.votes);
    if (qobs_searches(&o->config))
        put_search(sink, o);
    if (qobs_has_ranges(o) && qobs_histogram_rule(&o->config))
        put_histogram(sink, &o->kept.histogram);
    if (is_told(o))
        put_told(sink, o);
    put(sink, sink->to ? hash(sink->to, sink->size) : 0, HASH);
}

size_t qobs_observer_save_size(const qobs_observer *o)
{
    if (!o)
        return 0;
    struct sink sink = {0};
    put_all(&sink, o, 0);
    return sink.size;
}

int qobs_observer_save(const qobs_observer *o, void *buffer, size_t size, qobs_error *error)
{
    if (!o || !buffer)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", o ? "buffer" : "observer");
    const size_t expected = qobs_observer_save_size(o);
    if (size != expected)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "size: is %zu bytes, expected %zu", size, expected);
    struct sink sink = {.to = buffer};
    put_all(&sink, o, size);
    return qobs_succeed(error);
}

/* ---- Load ------------------------------------------------------------------------------------------------------------- */

/* Where bytes come from; past the end everything is 0 and `short_of` says so. */
struct source {
    const unsigned char *at, *end;
    bool short_of;
};

static const unsigned char *get_bytes(struct source *source, size_t n)
{
    const unsigned char *at = source->at;
    source->short_of |= (size_t)(source->end - at) < n;
    if (source->short_of)
        return NULL;
    source->at += n;
    return at;
}

static uint64_t get(struct source *source, size_t bytes)
{
    const unsigned char *p = get_bytes(source, bytes);
    uint64_t value = 0;
    for (size_t i = 0; p && i < bytes; i++)
        value |= (uint64_t)p[i] << 8 * i;
    return value;
}

static int damaged(qobs_error *error, const char *what)
{
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "buffer: is no saved state: %s", what);
}

/* Returns how many elements it has, or 0 if it cannot be. */
static size_t get_shape(struct source *source, struct shape *shape)
{
    const uint64_t ndim = get(source, 4);
    int64_t elements = 1;
    if (source->short_of || ndim > QOBS_MAX_NDIM)
        return 0;
    shape->ndim = (int)ndim;
    for (int d = 0; d < shape->ndim; d++) {
        shape->extent[d] = (int64_t)get(source, 8);
        if (source->short_of || !qobs_multiply(elements, shape->extent[d], &elements))
            return 0;
    }
    return (size_t)elements;
}

/* The settings' lines, one by one, into a new configuration. */
static int load_config(qobs_config **config, char *text, const qobs_runtime *runtime, qobs_error *error)
{
    char *line = strchr(text, '\n');
    if (!line)
        return damaged(error, "its settings have no end");
    *line++ = '\0';
    int status = qobs_config_create(config, text, runtime, error);
    while (status == QOBS_OK && *line) {
        char *end = strchr(line, '\n'), *equals = strchr(line, '=');
        if (!end || !equals || equals > end) {
            status = damaged(error, "a setting is not key=value");
            break;
        }
        *end = *equals = '\0';
        status = qobs_config_set(*config, line, equals + 1, error);
        line = end + 1;
    }
    return status;
}

static int load_ranges(qobs_observer *o, qobs_dtype dtype, struct source *source, qobs_error *error)
{
    enum qobs_kernel_dtype unused;
    struct layout layout = {.dtype = dtype};
    layout.qparams = get_shape(source, &layout.range);
    if (!qobs_kernel_dtype_of(dtype, &unused) || layout.qparams == 0 || get_shape(source, &layout.scale) != layout.qparams)
        return damaged(error, "the dtype or the shapes of its ranges cannot be");
    const uint64_t ids = get(source, 4);
    if (ids > IDS_BLOCKS || (ids >= IDS_GROUPS && layout.range.ndim != 2))
        return damaged(error, "the names of its ranges cannot be");
    layout.ids = (enum ids)ids;
    const size_t element = qobs_dtype_size(dtype);
    if (layout.qparams > (size_t)(source->end - source->at) / element / 2)
        return damaged(error, "its ranges are not all there");
    const int status = qobs_allocate_ranges(&o->runtime, &o->kept.state, dtype, layout.qparams, error);
    if (status != QOBS_OK)
        return status;
    copy_elements(o->kept.state.min, get_bytes(source, layout.qparams * element), layout.qparams, element);
    copy_elements(o->kept.state.max, get_bytes(source, layout.qparams * element), layout.qparams, element);
    o->layout = layout;
    return QOBS_OK;
}

static int load_whole(qobs_observer *o, struct source *source, qobs_error *error)
{
    enum qobs_kernel_dtype unused;
    const qobs_dtype dtype = (qobs_dtype)get(source, 4);
    if (dtype == 0)
        return QOBS_OK;
    if (!qobs_kernel_dtype_of(dtype, &unused) || o->config.preset->family != FAMILY_LLMC)
        return damaged(error, "its range of the whole cannot be");
    const size_t size = qobs_dtype_size(dtype);
    const unsigned char *bounds = get_bytes(source, 2 * size);
    if (!bounds)
        return damaged(error, "it ends early");
    o->whole.dtype = dtype;
    copy_elements(o->whole.min, bounds, 1, size);
    copy_elements(o->whole.max, bounds + size, 1, size);
    return QOBS_OK;
}

static int load_votes(qobs_observer *o, struct source *source, qobs_error *error)
{
    const size_t n = o->layout.qparams, candidates = (size_t)get(source, 4);
    struct votes *votes = &o->kept.votes;
    uint64_t count = 0;
    if (candidates == 0)
        return QOBS_OK;
    if (!qobs_votes(&o->config) || candidates > (size_t)(source->end - source->at) / 8 / (1 + n))
        return damaged(error, "its votes cannot be");
    const int status = qobs_votes_reserve(&o->runtime, votes, n, candidates, error);
    for (size_t i = 0; status == QOBS_OK && i < candidates; i++) {
        votes->count[i] = get(source, 8);
        count += votes->count[i];
        copy_elements(qobs_vote_scale(votes, i), get_bytes(source, n * 4), n, 4);
        copy_elements(qobs_vote_zero_point(votes, i), get_bytes(source, n * 4), n, 4);
        votes->candidates++;
    }
    return status == QOBS_OK && count > o->counts.batches ? damaged(error, "there are more votes than batches") : status;
}

/* n elements, if they are there. */
static bool get_elements(struct source *source, void *to, size_t n, size_t size)
{
    const unsigned char *from = get_bytes(source, n * size);
    if (from)
        copy_elements(to, from, n, size);
    return from != NULL;
}

static int load_importance(qobs_observer *o, struct source *source, qobs_error *error)
{
    const uint64_t columns = get(source, 8), tokens = get(source, 8);
    if (columns == 0)
        return tokens == 0 ? QOBS_OK : damaged(error, "there are tokens without columns");
    if (!qobs_weighs_columns(&o->config) || columns > (size_t)(source->end - source->at) / sizeof *o->importance.sum)
        return damaged(error, "its importance cannot be");
    const int status = qobs_importance_reserve(&o->runtime, &o->importance, (int64_t)columns, error);
    if (status != QOBS_OK)
        return status;
    o->importance.tokens = tokens;
    get_elements(source, o->importance.sum, (size_t)columns, sizeof *o->importance.sum);
    return QOBS_OK;
}

static int load_search(qobs_observer *o, struct source *source, qobs_error *error)
{
    struct search_record *searched = &o->searched;
    int status = load_importance(o, source, error);
    const uint64_t qparams = status == QOBS_OK ? get(source, 8) : 0;
    if (status != QOBS_OK || qparams == 0)
        return status;
    if (!qobs_has_ranges(o) || qparams != o->layout.qparams)
        return damaged(error, "its search is not of its ranges");
    status = qobs_search_record_reserve(&o->runtime, searched, (size_t)qparams, error);
    if (status != QOBS_OK)
        return status;
    const uint64_t steps = get(source, 4), stop = get(source, 4), weighted = get(source, 4), fault = get(source, 4);
    if (steps != (uint64_t)qobs_search_steps(&o->config) || stop > steps || weighted > 1 || fault >= IMPORTANCE_FAULTS)
        return damaged(error, "its search cannot be");
    searched->steps = (int32_t)steps;
    searched->stop_step = (int32_t)stop;
    searched->weighted = weighted;
    searched->fault = (enum importance_fault)fault;
    if (!get_elements(source, searched->best_step, (size_t)qparams, sizeof *searched->best_step) ||
        !get_elements(source, searched->error, (size_t)qparams, sizeof *searched->error) ||
        !get_elements(source, searched->error_before, (size_t)qparams, sizeof *searched->error_before))
        return damaged(error, "its search is not all there");
    for (size_t q = 0; q < searched->qparams; q++)
        if (searched->best_step[q] < (o->config.preset->statistic > STATISTIC_BALLOT_LEAST ? 0 : -1) || searched->best_step[q] >= searched->stop_step)
            return damaged(error, "a step it chose cannot be");
    return QOBS_OK;
}

static bool range_is_valid(const struct bin_range *range)
{
    const bool empty = isinf(range->lo) && range->lo > 0 && isinf(range->hi) && range->hi < 0;
    return isfinite(range->step) && (empty || (isfinite(range->lo) && isfinite(range->hi) && range->lo <= range->hi));
}

static int load_edges(qobs_observer *o, struct histogram *h, struct source *source, qobs_error *error)
{
    if ((size_t)(source->end - source->at) / sizeof *h->edges < h->bins + 1)
        return damaged(error, "its edges are not all there");
    h->edges = qobs_allocate(&o->runtime, (h->bins + 1) * sizeof *h->edges);
    if (!h->edges)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu edges", h->bins + 1);
    get_elements(source, h->edges, h->bins + 1, sizeof *h->edges);
    for (size_t i = 0; i < h->bins; i++)
        if (!(h->edges[i] <= h->edges[i + 1]) || isinf(h->edges[i]) || isinf(h->edges[i + 1]))
            return damaged(error, "an edge cannot be");
    return QOBS_OK;
}

static int load_histogram(qobs_observer *o, struct source *source, qobs_error *error)
{
    struct histogram *h = &o->kept.histogram;
    const uint64_t bins = get(source, 8), left = (uint64_t)(source->end - source->at);
    if (o->layout.dtype != QOBS_F32 || bins < 1 || bins > QOBS_MOST_BINS ||
        left / o->layout.qparams < 3 * sizeof(float) + bins * sizeof(double))
        return damaged(error, "its histograms are not all there");
    const int status = qobs_histogram_allocate(&o->runtime, h, o->layout.qparams, (size_t)bins, error);
    if (status != QOBS_OK)
        return status;
    for (size_t q = 0; q < h->qparams; q++) {
        get_elements(source, &h->range[q].lo, 1, sizeof(float));
        get_elements(source, &h->range[q].hi, 1, sizeof(float));
        get_elements(source, &h->range[q].step, 1, sizeof(float));
        if (!range_is_valid(&h->range[q]))
            return damaged(error, "the range of a histogram cannot be");
    }
    get_elements(source, h->mass, h->qparams * h->bins, sizeof *h->mass);
    for (size_t k = 0; k < h->qparams * h->bins; k++)
        if (!(h->mass[k] >= 0 && isfinite(h->mass[k])))
            return damaged(error, "a count cannot be");
    if (o->config.preset->statistic == STATISTIC_HISTOGRAM_TRT && !o->config.torch_hist)
        return load_edges(o, h, source, error);
    return QOBS_OK;
}

/* n floats into memory of their own. */
static int load_floats(qobs_observer *o, struct source *source, uint64_t n, float **to, size_t *count, qobs_error *error)
{
    if (n > (size_t)(source->end - source->at) / sizeof **to)
        return damaged(error, "its given amax or weights are not all there");
    if (n == 0)
        return QOBS_OK;
    *to = qobs_allocate(&o->runtime, (size_t)n * sizeof **to);
    if (!*to)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes", (size_t)n * sizeof **to);
    *count = (size_t)n;
    get_elements(source, *to, (size_t)n, sizeof **to);
    for (size_t i = 0; i < *count; i++)
        if (!((*to)[i] >= 0) || isinf((*to)[i]))
            return damaged(error, "its given amax or weights cannot be");
    return QOBS_OK;
}

static int load_told(qobs_observer *o, struct source *source, qobs_error *error)
{
    struct given *g = &o->given;
    const uint64_t dtype = get(source, 4), n = get(source, 8);
    enum qobs_kernel_dtype unused;
    if (dtype > 0 ? !qobs_kernel_dtype_of((qobs_dtype)dtype, &unused) : n > 0)
        return damaged(error, "the dtype of its given amax cannot be");
    g->dtype = (qobs_dtype)dtype;
    if (n > 0 && get_shape(source, &g->shape) != n)
        return damaged(error, "the shape of its given amax cannot be");
    int status = load_floats(o, source, n, &g->amax, &g->count, error);
    if (status == QOBS_OK)
        status = load_floats(o, source, get(source, 8), &g->weight, &g->weights, error);
    if (status != QOBS_OK || o->config.preset->statistic != STATISTIC_MULTIPLES || !qobs_has_ranges(o))
        return status;
    const size_t sums = o->layout.qparams * (size_t)qobs_search_steps(&o->config);
    if (sums > (size_t)(source->end - source->at) / sizeof *o->kept.sums)
        return damaged(error, "its errors are not all there");
    status = qobs_allocate_sums(&o->runtime, &o->kept, sums, error);
    if (status == QOBS_OK)
        get_elements(source, o->kept.sums, sums, sizeof *o->kept.sums);
    return status;
}

static int load_statistics(qobs_observer *o, struct source *source, qobs_error *error)
{
    o->counts.batches = get(source, 8);
    o->counts.elements = get(source, 8);
    o->counts.nan = get(source, 8);
    o->counts.inf = get(source, 8);
    o->counts.tokens = get(source, 8);
    o->counts.nonzero_tokens = get(source, 8);
    int status = load_whole(o, source, error);
    if (status != QOBS_OK)
        return status;
    const uint64_t dtype = get(source, 4);
    if ((dtype != 0) != (o->counts.batches > 0 && qobs_keeps(&o->config) != KEEPS_NOTHING))
        return damaged(error, "its number of batches does not go with its ranges");
    if (dtype != 0)
        status = load_ranges(o, (qobs_dtype)dtype, source, error);
    if (status == QOBS_OK && dtype != 0)
        status = load_votes(o, source, error);
    if (status == QOBS_OK && qobs_searches(&o->config))
        status = load_search(o, source, error);
    if (status == QOBS_OK && dtype != 0 && qobs_histogram_rule(&o->config))
        status = load_histogram(o, source, error);
    if (status == QOBS_OK && qobs_searches_kept(&o->config) && qobs_has_ranges(o) && o->searched.qparams == 0)
        return damaged(error, "its ranges have not been searched");
    if (status == QOBS_OK && is_told(o))
        status = load_told(o, source, error);
    if (status == QOBS_OK && (source->short_of || source->at != source->end))
        return damaged(error, source->short_of ? "it ends early" : "it is too long");
    return status;
}

int qobs_observer_load(qobs_observer **result, const void *buffer, size_t size, const qobs_runtime *runtime,
                       qobs_error *error)
{
    const unsigned char *begin = buffer;
    if (!result)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    if (!buffer || size < 4 + 4 + 8 + 4 + HASH || memcmp(begin, "qobs", 4) != 0)
        return damaged(error, "it does not begin as one");
    struct source source = {.at = begin + 4, .end = begin + size - HASH}, tail = {.at = source.end, .end = begin + size};
    const uint64_t format = get(&source, 4);
    if (format != FORMAT)
        return qobs_fail(error, QOBS_ERROR_UNSUPPORTED, "buffer: is a state of format %llu, this library reads %d",
                         (unsigned long long)format, FORMAT);
    if (get(&source, 8) != size || get(&tail, HASH) != hash(begin, size - HASH))
        return damaged(error, "its size or checksum is wrong");
    char text[MOST_TEXT];
    const uint64_t length = get(&source, 4);
    const unsigned char *settings = length < MOST_TEXT ? get_bytes(&source, (size_t)length) : NULL;
    if (!settings || memchr(settings, '\0', (size_t)length))
        return damaged(error, "its settings cannot be");
    memcpy(text, settings, (size_t)length);
    text[length] = '\0';
    qobs_config *config = NULL;
    qobs_observer *o = NULL;
    int status = load_config(&config, text, runtime, error);
    if (status == QOBS_OK)
        status = qobs_observer_create(&o, config, runtime, error);
    qobs_config_destroy(config);
    if (status == QOBS_OK)
        status = load_statistics(o, &source, error);
    if (status != QOBS_OK) {
        qobs_observer_destroy(o);
        return status;
    }
    *result = o;
    return qobs_succeed(error);
}
