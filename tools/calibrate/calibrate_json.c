/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Makes the JSON report of a calibration. */
#include <stdlib.h>
#include <string.h>

#include "calibrate.h"
#include "files/json.h"

static const char *const needs_names[] = {"none", "dynamic", "global_scale", "static"};

static void add_shape(json_object *object, const char *name, int ndim, const int64_t *shape)
{
    json_object *array = json_put_array(object, name);
    for (int d = 0; d < ndim; d++)
        json_append(array, json_object_new_uint64((uint64_t)shape[d]));
}

static void add_module(json_object *object, const char *name, size_t length)
{
    char *module = join(name, length, "");
    json_put_text(object, "module", module ? module : "");
    free(module);
}

static void add_counts(json_object *object, const qobs_counts *counts)
{
    json_put_count(object, "nan", (uint64_t)counts->nan);
    json_put_count(object, "inf", (uint64_t)counts->inf);
}

static void add_search(json_object *item, const struct layer *l)
{
    json_object *search = json_put_object(item, "search");
    json_put(search, "error_before", json_number(l->search.error_before));
    json_put(search, "error", json_number(l->search.error));
    json_put_bool(search, "weighted", l->search.weighted);
    if (l->importance)
        json_put_text(search, "importance", l->importance);
    if (l->search.fallback)
        json_put_text(search, "fallback", l->search.fallback);
    if (!l->candidates)
        return;
    json_put_count(search, "steps", (uint64_t)l->search.steps);
    json_put(search, "stop_step", json_object_new_int64(l->search.stop_step));
    json_object *candidates = json_put_array(search, "candidates");
    for (int i = 0; i < l->search.steps; i++)
        json_append(candidates, json_object_new_uint64((uint64_t)l->candidates[i]));
    json_put_count(search, "none", (uint64_t)l->candidates[l->search.steps]);
}

static void add_layer(json_object *layers, const struct layer *l)
{
    json_object *item = json_object_new_object();
    json_append(layers, item);
    add_module(item, l->ref->name, l->module);
    json_put_text(item, "dtype", l->ref->dtype);
    add_shape(item, "shape", l->ref->ndim, l->ref->shape);
    add_shape(item, "scale_shape", l->ndim, l->shape);
    json_put(item, "smallest_scale", json_number(l->min_scale));
    json_put(item, "largest_scale", json_number(l->max_scale));
    add_counts(item, &l->counts);
    if (l->candidates)
        add_search(item, l);
}

static void add_target(json_object *targets, const struct target *t, const struct stream *s)
{
    json_object *item = json_object_new_object();
    json_append(targets, item);
    add_module(item, t->module, t->length);
    json_put_text(item, "base", base_names[t->base]);
    if (!s) {
        json_put(item, "recorded", NULL);
        return;
    }
    json_put_text(item, "recorded", s->found->name);
    json_put_count(item, "batches", (uint64_t)s->counts.batches);
    json_put_count(item, "elements", (uint64_t)s->counts.elements);
    add_counts(item, &s->counts);
    const struct result *scale = stream_result(s, "scale"), *global = stream_result(s, "global_scale");
    if (scale) {
        double min, max;
        result_min_max(scale, &min, &max);
        add_shape(item, "scale_shape", scale->ndim, scale->shape);
        json_put(item, "smallest_scale", json_number(min));
        json_put(item, "largest_scale", json_number(max));
    }
    if (global)
        json_put(item, "global_scale", json_number(result_value(global, 0)));
}

static void add_activations(json_object *root, const struct calibration *c)
{
    const struct activations *a = &c->activations;
    const struct tensor_ref *first;
    json_object *object = json_put_object(root, "activations");
    json_object *files = json_put_array(object, "files");
    for (size_t i = 0; i < a->recordings.count; i++)
        json_append_text(files, a->recordings.items[i].set->path);
    json_put_count(object, "unused", (uint64_t)recordings_unused(&a->recordings, &first));
    json_object *bases = json_put_object(object, "bases");
    for (enum base b = BASE_INPUT; b < BASES; b++) {
        const struct base_counts t = activations_count(&c->activations, b);
        if (t.modules == 0)
            continue;
        json_object *base = json_put_object(bases, base_names[b]);
        json_put_text(base, "preset", c->bases.observers[b].preset);
        json_put_count(base, "modules", (uint64_t)t.modules);
        json_put_count(base, "missing", (uint64_t)t.missing);
    }
    json_object *modules = json_put_array(object, "modules");
    for (size_t i = 0; i < a->target_count; i++)
        add_target(modules, &a->targets[i], target_stream(a, &a->targets[i]));
}

char *calibration_report(const struct calibration *c)
{
    const struct layers *l = &c->layers;
    json_object *root = json_object_new_object();
    json_put_text(root, "qobs_version", qobs_version());
    json_put_text(root, "isa", qobs_isa_active());
    json_put_text(root, "model", c->model);
    json_put_text(root, "output", c->out);
    json_put_text(root, "scheme", c->scheme->name);
    json_put_text(root, "preset", c->bases.observers[BASE_WEIGHT].preset);
    json_put_text(root, "inputs", needs_names[c->bases.observers[BASE_INPUT].needs]);
    json_put_count(root, "bytes", (uint64_t)l->bytes);
    json_put(root, "seconds", json_number(c->seconds));
    json_put_count(root, "skipped", (uint64_t)l->skipped);
    double before = 0, after = 0;
    json_object *layers = json_put_array(root, "layers");
    for (size_t i = 0; i < l->count; i++) {
        add_layer(layers, &l->items[i]);
        before += l->items[i].search.error_before;
        after += l->items[i].search.error;
    }
    if (c->bases.observers[BASE_WEIGHT].searches) {
        json_put(root, "error_before", json_number(before));
        json_put(root, "error", json_number(after));
    }
    if (c->activations.recordings.count > 0)
        add_activations(root, c);
    char *printed = json_print(root, JSON_INDENTED);
    char *text = printed ? join(printed, strlen(printed), "\n") : NULL;
    free(printed);
    json_object_put(root);
    return text;
}
