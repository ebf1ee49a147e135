/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* An observer to bytes. */
#include <stdio.h>

#include "base/error.h"
#include "observer/saved_state.h"
#include "measure/accumulators.h"

/* The preset and its settings. Returns the length. */
static size_t describe(const qobs_config *config, char text[MOST_TEXT])
{
    size_t n = (size_t)snprintf(text, MOST_TEXT, "%s\n", config->preset->name);
    const char *key;
    for (size_t i = 0; (key = qobs_config_key(config, i)); i++) {
        char value[64] = "";
        qobs_config_get(config, key, value, sizeof value, NULL);
        n += (size_t)snprintf(text + n, MOST_TEXT - n, "%s=%s\n", key, value);
    }
    return n;
}

static void put_statistics(struct sink *sink, const qobs_observer *o)
{
    const struct layout *layout = &o->layout;
    qobs_put(sink, o->counts.batches, 8);
    qobs_put(sink, o->counts.elements, 8);
    qobs_put(sink, o->counts.nan, 8);
    qobs_put(sink, o->counts.inf, 8);
    qobs_put(sink, o->counts.tokens, 8);
    qobs_put(sink, o->counts.nonzero_tokens, 8);
    qobs_put(sink, (uint64_t)o->whole.dtype, 4);
    qobs_put_elements(sink, o->whole.min, o->whole.dtype != 0, qobs_dtype_size(o->whole.dtype));
    qobs_put_elements(sink, o->whole.max, o->whole.dtype != 0, qobs_dtype_size(o->whole.dtype));
    qobs_put(sink, qobs_has_ranges(o) ? (uint64_t)layout->dtype : 0, 4);
    if (!qobs_has_ranges(o))
        return;
    qobs_put_shape(sink, &layout->range);
    qobs_put_shape(sink, &layout->scale);
    qobs_put(sink, (uint64_t)layout->keying, 4);
    qobs_put_elements(sink, o->kept.state.min, layout->qparams, qobs_dtype_size(layout->dtype));
    qobs_put_elements(sink, o->kept.state.max, layout->qparams, qobs_dtype_size(layout->dtype));
}

static void put_votes(struct sink *sink, const struct mode_count *mode_count)
{
    qobs_put(sink, mode_count->candidates, 4);
    for (size_t i = 0; i < mode_count->candidates; i++) {
        qobs_put(sink, mode_count->count[i], 8);
        qobs_put_elements(sink, qobs_mode_scale(mode_count, i), mode_count->n, 4);
        qobs_put_elements(sink, qobs_mode_zero_point(mode_count, i), mode_count->n, 4);
    }
}

/* Only for presets that search. */
static void put_search(struct sink *sink, const qobs_observer *o)
{
    const struct importance *importance = &o->importance;
    const struct search_record *searched = &o->searched;
    qobs_put(sink, (uint64_t)importance->columns, 8);
    qobs_put(sink, importance->tokens, 8);
    qobs_put_elements(sink, importance->sum, (size_t)importance->columns, sizeof *importance->sum);
    qobs_put(sink, searched->qparams, 8);
    if (searched->qparams == 0)
        return;
    qobs_put(sink, (uint64_t)searched->steps, 4);
    qobs_put(sink, (uint64_t)searched->stop_step, 4);
    qobs_put(sink, searched->weighted, 4);
    qobs_put(sink, (uint64_t)searched->fault, 4);
    qobs_put_elements(sink, searched->best_step, searched->qparams, sizeof *searched->best_step);
    qobs_put_elements(sink, searched->error, searched->qparams, sizeof *searched->error);
    qobs_put_elements(sink, searched->error_before, searched->qparams, sizeof *searched->error_before);
}

/* Only for presets with histograms. */
static void put_histogram(struct sink *sink, const struct histogram *h)
{
    qobs_put(sink, h->bins, 8);
    for (size_t q = 0; q < h->qparams; q++) {
        qobs_put_elements(sink, &h->range[q].lo, 1, sizeof(float));
        qobs_put_elements(sink, &h->range[q].hi, 1, sizeof(float));
        qobs_put_elements(sink, &h->range[q].step, 1, sizeof(float));
    }
    qobs_put_elements(sink, h->mass, h->qparams * h->bins, sizeof *h->mass);
    if (h->edges)
        qobs_put_elements(sink, h->edges, h->bins + 1, sizeof *h->edges);
}

/* Only for presets of Model-Optimizer that search. */
static void put_told(struct sink *sink, const qobs_observer *o)
{
    const struct search_reference *g = &o->given;
    qobs_put(sink, g->dtype, 4);
    qobs_put(sink, g->count, 8);
    if (g->count > 0)
        qobs_put_shape(sink, &g->shape);
    qobs_put_elements(sink, g->amax, g->count, sizeof *g->amax);
    qobs_put(sink, g->weights, 8);
    qobs_put_elements(sink, g->weight, g->weights, sizeof *g->weight);
    qobs_put_elements(sink, o->kept.sums, o->kept.sums_count, sizeof *o->kept.sums);
}

static void put_all(struct sink *sink, const qobs_observer *o, size_t size)
{
    char text[MOST_TEXT];
    const size_t length = describe(&o->config, text);
    qobs_put_elements(sink, "qobs", 4, 1);
    qobs_put(sink, FORMAT, 4);
    qobs_put(sink, size, 8);
    qobs_put(sink, length, 4);
    qobs_put_elements(sink, text, length, 1);
    put_statistics(sink, o);
    if (qobs_has_ranges(o))
        put_votes(sink, &o->kept.mode_count);
    if (qobs_searches(&o->config))
        put_search(sink, o);
    if (qobs_has_ranges(o) && o->stages.histogram.ops)
        put_histogram(sink, &o->kept.histogram);
    if (qobs_is_told(o))
        put_told(sink, o);
    qobs_put(sink, sink->to ? qobs_hash(sink->to, sink->size) : 0, HASH);
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
