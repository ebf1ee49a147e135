/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The report of a calibration as JSON. */
#include <math.h>
#include <string.h>

#include "calibrate/calibration.h"
#include "files/json.h"
#include "model/stored_qparams.h"

static const struct activation_stream *stream_of(const struct activation_scales *s, size_t need)
{
    return s->streams.of_need && s->streams.of_need[need] != NO_STREAM ? &s->streams.items[s->streams.of_need[need]]
                                                                       : NULL;
}

struct kind_counts count_kind(const struct calibration *c, enum activation_kind kind)
{
    const struct activation_scales *s = &c->activations;
    const bool unasked = !s->streams.of_need && kind >= ACTIVATION_Q; /* states count if something is recorded */
    struct kind_counts counts = {0};
    for (size_t i = 0; i < s->needs.count && !s->absent[kind] && !unasked; i++) {
        if (s->needs.items[i].kind != kind)
            continue;
        counts.modules++;
        if (!stream_of(s, i) && counts.missing++ == 0)
            counts.first_missing = &s->needs.items[i];
    }
    return counts;
}

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

static void put_module(json_object *object, const char *key, const char *name, size_t length)
{
    json_put(object, key, json_object_new_string_len(name, (int)length));
}

static void put_shape(json_object *object, const char *key, int ndim, const int64_t *shape)
{
    json_object *array = json_put_array(object, key);
    for (int d = 0; d < ndim; d++)
        json_append(array, json_object_new_int64(shape[d]));
}

static void put_search(json_object *layer, const struct weight_job *job, const struct scale_statistics *s)
{
    json_object *search = json_put_object(layer, "search");
    json_put(search, "error_before", json_number(s->search.error_before));
    json_put(search, "error", json_number(s->search.error));
    json_put_bool(search, "weighted", s->search.weighted);
    if (job->weighted && job->importance.recorded)
        json_put_text(search, "importance", job->importance.recorded->name);
    else if (job->weighted && job->importance.entry)
        json_put_text(search, "importance", job->importance.entry->name);
    if (job->group->needs.importance && !job->weighted)
        json_put_text(search, "fallback", "no activations have been observed");
    if (!s->candidates)
        return;
    json_put_count(search, "steps", (uint64_t)s->search.steps);
    json_put(search, "stop_step", json_object_new_int64(s->search.stop_step));
    json_object *candidates = json_put_array(search, "candidates");
    for (int i = 0; i < s->search.steps; i++)
        json_append(candidates, json_object_new_uint64(s->candidates[i]));
    json_put_count(search, "none", s->candidates[s->search.steps]);
}

static bool is_searched(const struct weight_job *job)
{
    return job->group->needs.searches_range || job->group->needs.searches_scale;
}

static void put_layer(json_object *layers, const struct calibration *c, const struct weight_job *job)
{
    const struct output_tensor *scale = &c->layout.tensors[c->layout.parts[job->index][PART_SCALE]];
    const struct scale_statistics *s = &c->sink.statistics[job->index];
    json_object *layer = json_object_new_object();
    put_module(layer, "module", job->weight->name, job->weight->module);
    json_put_text(layer, "dtype", dtype_name(job->weight->dtype));
    put_shape(layer, "shape", job->weight->ndim, job->weight->shape);
    put_shape(layer, "scale_shape", scale->ndim, scale->shape);
    json_put(layer, "smallest_scale", json_number(s->min_scale));
    json_put(layer, "largest_scale", json_number(s->max_scale));
    json_put_count(layer, "nan", s->counts.nan);
    json_put_count(layer, "inf", s->counts.inf);
    if (is_searched(job))
        put_search(layer, job, s);
    json_append_printed(layers, layer, JSON_INDENTED, 2);
}

/* ---- Activations ------------------------------------------------------------------------------------------------- */

/* Adds the smallest and largest number of a result as it is stored. */
static void put_result(json_object *module, const struct activation_scale *t)
{
    double min = INFINITY, max = -INFINITY;
    const char *dot = strrchr(t->name, '.');
    if (!strstr(dot, "_scale"))
        return; /* a zero point */
    for (size_t i = 0; i < t->bytes / dtype_size(t->dtype); i++) {
        const double number = stored_scale_number(t->data, t->dtype, i);
        min = fmin(min, number);
        max = fmax(max, number);
    }
    if (strstr(dot, "_global_scale")) {
        json_put(module, "global_scale", json_number(min));
    } else {
        put_shape(module, "scale_shape", t->ndim, t->shape);
        json_put(module, "smallest_scale", json_number(min));
        json_put(module, "largest_scale", json_number(max));
    }
}

static void put_need(json_object *modules, const struct activation_scales *s, size_t index)
{
    const struct activation_need *n = &s->needs.items[index];
    const struct activation_stream *stream = stream_of(s, index);
    json_object *module = json_object_new_object();
    qobs_counts counts = {.struct_size = sizeof counts};
    put_module(module, "module", n->module, n->length);
    json_put_text(module, "base", activation_bases[n->kind]);
    if (!stream) {
        json_put(module, "recorded", NULL);
    } else {
        json_put_text(module, "recorded", stream->recorded ? stream->recorded->name : stream->states->path);
        qobs_observer_counts(stream->observer, &counts, NULL);
        json_put_count(module, "batches", counts.batches);
        json_put_count(module, "elements", counts.elements);
        json_put_count(module, "nan", counts.nan);
        json_put_count(module, "inf", counts.inf);
        for (size_t i = 0; i < s->count; i++)
            if (s->items[i].need == index)
                put_result(module, &s->items[i]);
    }
    json_append_printed(modules, module, JSON_INDENTED, 3);
}

static void put_activations(json_object *report, const struct calibration *c)
{
    const struct activation_scales *s = &c->activations;
    const struct tensor_ref *first;
    json_object *activations = json_put_object(report, "activations"), *files = json_put_array(activations, "files");
    for (size_t i = 0; i < s->sources->recordings.count; i++)
        json_append_text(files, s->sources->recordings.items[i].set->path);
    const size_t unused = recordings_unused(&s->sources->recordings, &first);
    json_put_count(activations, "unused", unused);
    if (unused > 0)
        json_put_text(activations, "first_unused", first->name);
    json_object *bases = json_put_object(activations, "bases");
    for (enum activation_kind k = ACTIVATION_INPUT; k < ACTIVATION_KINDS; k++) {
        const struct kind_counts counts = count_kind(c, k);
        if (counts.modules == 0)
            continue;
        json_object *base = json_put_object(bases, activation_bases[k]);
        json_put_text(base, "preset", base_preset(&c->bases, k));
        json_put_count(base, "modules", counts.modules);
        json_put_count(base, "missing", counts.missing);
        if (counts.first_missing)
            put_module(base, "first_missing", counts.first_missing->module, counts.first_missing->length);
    }
    json_object *modules = json_put_array(activations, "modules");
    for (enum activation_kind k = ACTIVATION_INPUT; k < ACTIVATION_KINDS; k++)
        for (size_t i = 0; i < s->needs.count && !s->absent[k]; i++)
            if (s->needs.items[i].kind == k)
                put_need(modules, s, i);
}

/* ---- Report ------------------------------------------------------------------------------------------------------ */

/* Returns how the inputs of the first group get their scales. */
static const char *inputs_of(const struct quant_group *g)
{
    static const char *const names[] = {
        [QUANT_STATIC] = "static", [QUANT_DYNAMIC] = "dynamic", [QUANT_LOCAL] = "global_scale"};
    return g->has_inputs ? names[g->inputs.dynamic] : "none";
}

static void put_layers(json_object *report, const struct calibration *c)
{
    json_object *layers = json_put_array(report, "layers");
    double before = 0, after = 0;
    uint64_t bytes = 0;
    bool searched = false;
    for (size_t i = 0; i < c->engine.job_count; i++) {
        const struct weight_job *job = &c->engine.jobs[i];
        put_layer(layers, c, job);
        bytes += job->weight->bytes;
        before += c->sink.statistics[job->index].search.error_before;
        after += c->sink.statistics[job->index].search.error;
        searched |= is_searched(job);
    }
    json_put_count(report, "bytes", bytes);
    if (searched) {
        json_put(report, "error_before", json_number(before));
        json_put(report, "error", json_number(after));
    }
}

static bool fill_report(json_object *report, const struct calibration *c)
{
    const qobs_checkpoint_calibrate_args *a = c->args;
    char missing[400];
    size_t skipped = 0;
    for (size_t i = 0; i < c->selection.weights.count; i++)
        skipped += c->selection.weights.items[i].reason == WEIGHT_NO_FLOAT;
    json_put_text(report, "qobs_version", qobs_version());
    json_put_text(report, "isa", qobs_isa_active());
    json_put_text(report, "model", a->model);
    json_put_text(report, "output", a->out);
    json_put_text(report, "scheme", a->scheme ? a->scheme : a->config ? a->config : a->recipe);
    json_put_text(report, "preset", base_preset(&c->bases, BASE_WEIGHT));
    json_put_text(report, "inputs", inputs_of(&c->selection.config.groups[0]));
    json_put_bool(report, "zero_points", !c->selection.config.groups[0].weights.symmetric);
    json_put(report, "seconds", json_number(c->seconds));
    json_put_count(report, "skipped", skipped);
    put_layers(report, c);
    json_object *warnings = json_put_array(report, "warnings");
    for (size_t i = 0; i < c->selection.config.note_count; i++)
        json_append_text(warnings, c->selection.config.notes[i]);
    if (engine_lacks_importance(&c->engine, missing, sizeof missing)) {
        json_append_text(warnings, missing);
        json_put_bool(report, "incomplete", true);
    }
    if (c->activations.streams.of_need)
        put_activations(report, c);
    return quant_config_report_unused(&c->selection.config, report);
}

json_object *calibration_report(const struct calibration *c)
{
    json_object *report = json_report();
    if (fill_report(report, c))
        return report;
    json_object_put(report);
    return NULL;
}
