/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Makes the JSON report of a calibration. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate.h"
#include "files/json.h"

static const char *const needs_names[] = {"none", "dynamic", "global_scale", "static"};

static void add_shape(cJSON *object, const char *name, int ndim, const int64_t *shape)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (int d = 0; d < ndim; d++)
        cJSON_AddItemToArray(array, cJSON_CreateNumber((double)shape[d]));
}

static void add_module(cJSON *object, const char *name, size_t length)
{
    char *module = join(name, length, "");
    cJSON_AddStringToObject(object, "module", module ? module : "");
    free(module);
}

static void add_counts(cJSON *object, const qobs_counts *counts)
{
    cJSON_AddNumberToObject(object, "nan", (double)counts->nan);
    cJSON_AddNumberToObject(object, "inf", (double)counts->inf);
}

static void add_search(cJSON *item, const struct layer *l)
{
    cJSON *search = cJSON_AddObjectToObject(item, "search");
    cJSON_AddItemToObject(search, "error_before", json_number(l->search.error_before));
    cJSON_AddItemToObject(search, "error", json_number(l->search.error));
    cJSON_AddBoolToObject(search, "weighted", l->search.weighted);
    if (l->importance)
        cJSON_AddStringToObject(search, "importance", l->importance);
    if (l->search.fallback)
        cJSON_AddStringToObject(search, "fallback", l->search.fallback);
    if (!l->candidates)
        return;
    cJSON_AddNumberToObject(search, "steps", l->search.steps);
    cJSON_AddNumberToObject(search, "stop_step", l->search.stop_step);
    cJSON *candidates = cJSON_AddArrayToObject(search, "candidates");
    for (int i = 0; i < l->search.steps; i++)
        cJSON_AddItemToArray(candidates, cJSON_CreateNumber((double)l->candidates[i]));
    cJSON_AddNumberToObject(search, "none", (double)l->candidates[l->search.steps]);
}

static void add_layer(cJSON *layers, const struct layer *l)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(layers, item);
    add_module(item, l->ref->name, l->module);
    cJSON_AddStringToObject(item, "dtype", l->ref->dtype);
    add_shape(item, "shape", l->ref->ndim, l->ref->shape);
    add_shape(item, "scale_shape", l->ndim, l->shape);
    cJSON_AddItemToObject(item, "smallest_scale", json_number(l->min_scale));
    cJSON_AddItemToObject(item, "largest_scale", json_number(l->max_scale));
    add_counts(item, &l->counts);
    if (l->candidates)
        add_search(item, l);
}

static void add_target(cJSON *targets, const struct target *t, const struct stream *s)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(targets, item);
    add_module(item, t->module, t->length);
    cJSON_AddStringToObject(item, "base", base_names[t->base]);
    if (!s) {
        cJSON_AddNullToObject(item, "recorded");
        return;
    }
    cJSON_AddStringToObject(item, "recorded", s->found->name);
    cJSON_AddNumberToObject(item, "batches", (double)s->counts.batches);
    cJSON_AddNumberToObject(item, "elements", (double)s->counts.elements);
    add_counts(item, &s->counts);
    const struct result *scale = stream_result(s, "scale"), *global = stream_result(s, "global_scale");
    if (scale) {
        double min, max;
        result_min_max(scale, &min, &max);
        add_shape(item, "scale_shape", scale->ndim, scale->shape);
        cJSON_AddItemToObject(item, "smallest_scale", json_number(min));
        cJSON_AddItemToObject(item, "largest_scale", json_number(max));
    }
    if (global)
        cJSON_AddItemToObject(item, "global_scale", json_number(result_value(global, 0)));
}

static void add_activations(cJSON *root, const struct calibration *c)
{
    const struct activations *a = &c->activations;
    const struct tensor_ref *first;
    cJSON *object = cJSON_AddObjectToObject(root, "activations");
    cJSON *files = cJSON_AddArrayToObject(object, "files");
    for (size_t i = 0; i < a->recordings.count; i++)
        cJSON_AddItemToArray(files, cJSON_CreateString(a->recordings.items[i].set->path));
    cJSON_AddNumberToObject(object, "unused", (double)recordings_unused(&a->recordings, &first));
    cJSON *bases = cJSON_AddObjectToObject(object, "bases");
    for (enum base b = BASE_INPUT; b < BASES; b++) {
        const struct base_counts t = activations_count(&c->activations, b);
        if (t.modules == 0)
            continue;
        cJSON *base = cJSON_AddObjectToObject(bases, base_names[b]);
        cJSON_AddStringToObject(base, "preset", c->bases.observers[b].preset);
        cJSON_AddNumberToObject(base, "modules", (double)t.modules);
        cJSON_AddNumberToObject(base, "missing", (double)t.missing);
    }
    cJSON *modules = cJSON_AddArrayToObject(object, "modules");
    for (size_t i = 0; i < a->target_count; i++)
        add_target(modules, &a->targets[i], target_stream(a, &a->targets[i]));
}

char *calibration_report(const struct calibration *c)
{
    const struct layers *l = &c->layers;
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "qobs_version", qobs_version());
    cJSON_AddStringToObject(root, "isa", qobs_isa_active());
    cJSON_AddStringToObject(root, "model", c->model);
    cJSON_AddStringToObject(root, "output", c->out);
    cJSON_AddStringToObject(root, "scheme", c->scheme->name);
    cJSON_AddStringToObject(root, "preset", c->bases.observers[BASE_WEIGHT].preset);
    cJSON_AddStringToObject(root, "inputs", needs_names[c->bases.observers[BASE_INPUT].needs]);
    cJSON_AddNumberToObject(root, "bytes", (double)l->bytes);
    cJSON_AddNumberToObject(root, "seconds", c->seconds);
    cJSON_AddNumberToObject(root, "skipped", (double)l->skipped);
    double before = 0, after = 0;
    cJSON *layers = cJSON_AddArrayToObject(root, "layers");
    for (size_t i = 0; i < l->count; i++) {
        add_layer(layers, &l->items[i]);
        before += l->items[i].search.error_before;
        after += l->items[i].search.error;
    }
    if (c->bases.observers[BASE_WEIGHT].searches) {
        cJSON_AddItemToObject(root, "error_before", json_number(before));
        cJSON_AddItemToObject(root, "error", json_number(after));
    }
    if (c->activations.recordings.count > 0)
        add_activations(root, c);
    char *printed = cJSON_Print(root);
    char *text = printed ? join(printed, strlen(printed), "\n") : NULL;
    cJSON_free(printed);
    cJSON_Delete(root);
    return text;
}
