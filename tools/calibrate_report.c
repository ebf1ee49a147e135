/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What is told of a calibration: a table for people, JSON for programs. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate.h"

static void shape_text(int ndim, const int64_t *shape, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d ? " x " : "", (long long)shape[d]);
}

enum { WIDEST = 100 };

/* Names come out of files and go to terminals. */
static const char *clean_name(const char *name, size_t length, char text[WIDEST + 1])
{
    size_t n = 0;
    for (; n < length && n < WIDEST; n++)
        text[n] = (unsigned char)name[n] < 0x20 || name[n] == 0x7f ? '?' : name[n];
    text[n] = '\0';
    if (length > WIDEST)
        memcpy(text + WIDEST - 3, "...", 3);
    return text;
}

static int wider(int width, size_t length)
{
    return (int)(length > WIDEST ? WIDEST : length) > width ? (int)(length > WIDEST ? WIDEST : length) : width;
}

/* ---- What became of a base ------------------------------------------------------------------------------------------------- */

static const char *const needs_names[] = {"none", "dynamic", "global_scale", "static"};

static const struct stream *stream_of(const struct calibration *c, const struct target *t)
{
    return t->stream == NOT_RECORDED ? NULL : &c->activations.streams[t->stream];
}

struct tally {
    size_t modules, missing;
    const struct target *first_missing;
};

static struct tally tally(const struct calibration *c, enum base base)
{
    struct tally result = {0};
    for (size_t i = 0; i < c->activations.target_count; i++) {
        const struct target *t = &c->activations.targets[i];
        if (t->base != base)
            continue;
        result.modules++;
        if (stream_of(c, t))
            continue;
        if (result.missing++ == 0)
            result.first_missing = t;
    }
    return result;
}

static const struct reading *result_of(const struct stream *s, const char *name)
{
    for (size_t i = 0; i < s->results.count; i++)
        if (strcmp(s->results.items[i].name, name) == 0)
            return &s->results.items[i];
    return NULL;
}

static void extremes(const struct reading *r, double *least, double *greatest)
{
    *least = INFINITY;
    *greatest = -INFINITY;
    for (size_t i = 0; i < r->size / qobs_dtype_size(r->dtype); i++) {
        *least = fmin(*least, reading_value(r, i));
        *greatest = fmax(*greatest, reading_value(r, i));
    }
}

/* ---- Table ---------------------------------------------------------------------------------------------------------------- */

static void print_weights(const struct calibration *c)
{
    const struct layers *layers = &c->layers;
    const struct base_observer *weights = &c->bases.of[BASE_WEIGHT];
    int width = 6;
    int64_t qparams = 0;
    uint64_t nan = 0, inf = 0;
    size_t holed = 0;
    for (size_t i = 0; i < layers->count; i++)
        width = wider(width, layers->items[i].module);
    printf("%-*s  %-14s %-5s %-14s %12s %12s\n", width, "module", "weight", "dtype", "scales", "smallest", "largest");
    for (size_t i = 0; i < layers->count; i++) {
        const struct layer *l = &layers->items[i];
        char weight[96], scales[96], module[WIDEST + 1];
        shape_text(l->ref->ndim, l->ref->shape, weight, sizeof weight);
        shape_text(l->ndim, l->shape, scales, sizeof scales);
        printf("%-*s  %-14s %-5s %-14s %12.6g %12.6g", width, clean_name(l->ref->name, l->module, module), weight, l->ref->dtype,
               scales, l->least_scale, l->greatest_scale);
        if (l->counts.nan + l->counts.inf > 0)
            printf("  %llu NaN, %llu infinite", (unsigned long long)l->counts.nan, (unsigned long long)l->counts.inf);
        printf("\n");
        qparams += l->qparams;
        nan += l->counts.nan;
        inf += l->counts.inf;
        holed += l->counts.nan + l->counts.inf > 0;
    }
    printf("%zu layers, %.1f MB of weights, %lld scales%s, %s with %s: %.3f s, %.2f GB/s -> %s\n", layers->count,
           (double)layers->bytes * 1e-6, (long long)qparams, weights->zero_points ? " and zero points" : "", c->scheme->name,
           weights->preset, c->seconds, (double)layers->bytes * 1e-9 / c->seconds, c->out);
    if (layers->skipped)
        printf("%zu selected weights were left out: their dtype cannot be observed\n", layers->skipped);
    if (holed)
        printf("%zu layers hold %llu NaN and %llu infinite weights\n", holed, (unsigned long long)nan, (unsigned long long)inf);
}

static void print_target(const struct target *t, const struct stream *s, int width, int sources)
{
    char module[WIDEST + 1], source[WIDEST + 1];
    printf("%-*s  %-6s ", width, clean_name(t->module, t->length, module), base_names[t->base]);
    if (!s) {
        printf("not recorded\n");
        return;
    }
    const struct reading *scale = result_of(s, "scale"), *global = result_of(s, "global_scale");
    double least = NAN, greatest = NAN;
    if (scale)
        extremes(scale, &least, &greatest);
    printf("%-*s %7llu", sources, clean_name(s->found->name, strlen(s->found->name), source),
           (unsigned long long)s->counts.batches);
    if (scale)
        printf(" %12.6g %12.6g", least, greatest);
    else
        printf(" %12s %12s", "dynamic", "dynamic");
    if (global)
        printf(" %12.6g", reading_value(global, 0));
    if (s->counts.nan + s->counts.inf > 0)
        printf("  %llu NaN, %llu infinite", (unsigned long long)s->counts.nan, (unsigned long long)s->counts.inf);
    printf("\n");
}

static void print_inputs_summary(const struct calibration *c)
{
    const struct base_observer *o = &c->bases.of[BASE_INPUT];
    const char *const scheme = c->scheme->name;
    if (o->needs == NEEDS_DYNAMIC)
        printf("inputs: %s makes their scales while the model runs, none are written\n", scheme);
    else if (o->needs == NEEDS_NOTHING && c->activations.recordings.count > 0)
        printf("inputs: are not quantized, no scales are written\n");
    else if (o->needs >= NEEDS_GLOBAL_SCALE && c->activations.recordings.count == 0)
        printf("inputs: %s needs <module>.input_%sscale, which takes recorded --activations\n", scheme,
               o->needs == NEEDS_GLOBAL_SCALE ? "global_" : "");
}

static void print_activations(const struct calibration *c)
{
    const struct activations *a = &c->activations;
    const struct tensor_ref *first;
    int width = 6, sources = 8;
    for (size_t i = 0; i < a->target_count; i++) {
        const struct stream *s = stream_of(c, &a->targets[i]);
        width = wider(width, a->targets[i].length);
        sources = s ? wider(sources, strlen(s->found->name)) : sources;
    }
    if (a->target_count > 0)
        printf("\n%-*s  %-6s %-*s %7s %12s %12s%s\n", width, "module", "base", sources, "recorded", "batches", "smallest",
               "largest", c->bases.of[BASE_INPUT].global_scales ? "       global" : "");
    for (size_t i = 0; i < a->target_count; i++)
        print_target(&a->targets[i], stream_of(c, &a->targets[i]), width, sources);
    for (enum base b = BASE_INPUT; b < BASES; b++) {
        const struct tally t = tally(c, b);
        if (t.modules > 0)
            printf("%s: %zu of %zu modules recorded, %s\n", base_names[b], t.modules - t.missing, t.modules,
                   c->bases.of[b].preset);
    }
    const size_t unused = recordings_unused(&a->recordings, &first);
    if (unused > 0) {
        char name[WIDEST + 1];
        printf("%zu recorded tensors were not needed, the first is '%s'\n", unused,
               clean_name(first->name, strlen(first->name), name));
    }
}

void calibration_print(const struct calibration *c)
{
    print_weights(c);
    print_inputs_summary(c);
    if (c->activations.recordings.count > 0)
        print_activations(c);
}

void calibration_warn(const struct calibration *c)
{
    for (enum base b = BASE_INPUT; b < BASES; b++) {
        const struct tally t = tally(c, b);
        char name[WIDEST + 1];
        if (t.missing > 0)
            fprintf(stderr, "qobs: warning: %s: not recorded for %zu of %zu modules, whose scales are missing: '%s'%s\n",
                    base_names[b], t.missing, t.modules, clean_name(t.first_missing->module, t.first_missing->length, name),
                    t.missing > 1 ? " and others" : "");
    }
}

/* ---- JSON ----------------------------------------------------------------------------------------------------------------- */

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

static void add_layer(cJSON *layers, const struct layer *l)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(layers, item);
    add_module(item, l->ref->name, l->module);
    cJSON_AddStringToObject(item, "dtype", l->ref->dtype);
    add_shape(item, "shape", l->ref->ndim, l->ref->shape);
    add_shape(item, "scale_shape", l->ndim, l->shape);
    cJSON_AddNumberToObject(item, "smallest_scale", l->least_scale);
    cJSON_AddNumberToObject(item, "largest_scale", l->greatest_scale);
    add_counts(item, &l->counts);
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
    const struct reading *scale = result_of(s, "scale"), *global = result_of(s, "global_scale");
    if (scale) {
        double least, greatest;
        extremes(scale, &least, &greatest);
        add_shape(item, "scale_shape", scale->ndim, scale->shape);
        cJSON_AddNumberToObject(item, "smallest_scale", least);
        cJSON_AddNumberToObject(item, "largest_scale", greatest);
    }
    if (global)
        cJSON_AddNumberToObject(item, "global_scale", reading_value(global, 0));
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
        const struct tally t = tally(c, b);
        if (t.modules == 0)
            continue;
        cJSON *base = cJSON_AddObjectToObject(bases, base_names[b]);
        cJSON_AddStringToObject(base, "preset", c->bases.of[b].preset);
        cJSON_AddNumberToObject(base, "modules", (double)t.modules);
        cJSON_AddNumberToObject(base, "missing", (double)t.missing);
    }
    cJSON *modules = cJSON_AddArrayToObject(object, "modules");
    for (size_t i = 0; i < a->target_count; i++)
        add_target(modules, &a->targets[i], stream_of(c, &a->targets[i]));
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
    cJSON_AddStringToObject(root, "preset", c->bases.of[BASE_WEIGHT].preset);
    cJSON_AddStringToObject(root, "inputs", needs_names[c->bases.of[BASE_INPUT].needs]);
    cJSON_AddNumberToObject(root, "bytes", (double)l->bytes);
    cJSON_AddNumberToObject(root, "seconds", c->seconds);
    cJSON_AddNumberToObject(root, "skipped", (double)l->skipped);
    cJSON *layers = cJSON_AddArrayToObject(root, "layers");
    for (size_t i = 0; i < l->count; i++)
        add_layer(layers, &l->items[i]);
    if (c->activations.recordings.count > 0)
        add_activations(root, c);
    char *printed = cJSON_Print(root);
    char *text = printed ? join(printed, strlen(printed), "\n") : NULL;
    cJSON_free(printed);
    cJSON_Delete(root);
    return text;
}
