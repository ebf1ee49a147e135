/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prints the table of a calibration. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "calibrate.h"

static void shape_text(int ndim, const int64_t *shape, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d ? " x " : "", (long long)shape[d]);
}

enum { MAX_NAME = 100 };

/* Names come from files and go to terminals, so they are made printable and shortened. */
static const char *clean_name(const char *name, size_t length, char text[MAX_NAME + 1])
{
    const size_t n = length < MAX_NAME ? length : MAX_NAME;
    memcpy(text, name, n);
    text[n] = '\0';
    if (length > MAX_NAME)
        memcpy(text + MAX_NAME - 3, "...", 3);
    make_printable(text);
    return text;
}

static int wider(int width, size_t length)
{
    return (int)(length > MAX_NAME ? MAX_NAME : length) > width ? (int)(length > MAX_NAME ? MAX_NAME : length) : width;
}

/* ---- Table ------------------------------------------------------------------------------------------------------- */

static void print_weights(const struct calibration *c)
{
    const struct layers *layers = &c->layers;
    const struct base_observer *weights = &c->bases.observers[BASE_WEIGHT];
    int width = 6;
    int64_t qparams = 0;
    uint64_t nan = 0, inf = 0;
    size_t nonfinite_layers = 0;
    for (size_t i = 0; i < layers->count; i++)
        width = wider(width, layers->items[i].module);
    printf("%-*s  %-14s %-5s %-14s %12s %12s\n", width, "module", "weight", "dtype", "scales", "smallest", "largest");
    for (size_t i = 0; i < layers->count; i++) {
        const struct layer *l = &layers->items[i];
        char weight[96], scales[96], module[MAX_NAME + 1];
        shape_text(l->ref->ndim, l->ref->shape, weight, sizeof weight);
        shape_text(l->ndim, l->shape, scales, sizeof scales);
        printf("%-*s  %-14s %-5s %-14s %12.6g %12.6g", width, clean_name(l->ref->name, l->module, module), weight,
               l->ref->dtype, scales, l->min_scale, l->max_scale);
        if (l->counts.nan + l->counts.inf > 0)
            printf("  %llu NaN, %llu infinite", (unsigned long long)l->counts.nan, (unsigned long long)l->counts.inf);
        printf("\n");
        qparams += l->qparams;
        nan += l->counts.nan;
        inf += l->counts.inf;
        nonfinite_layers += l->counts.nan + l->counts.inf > 0;
    }
    printf("%zu layers, %.1f MB of weights, %lld scales%s, %s with %s: %.3f s, %.2f GB/s -> %s\n", layers->count,
           (double)layers->bytes * 1e-6, (long long)qparams, weights->zero_points ? " and zero points" : "",
           c->scheme->name, weights->preset, c->seconds, (double)layers->bytes * 1e-9 / c->seconds, c->out);
    if (layers->skipped)
        printf("%zu selected weights were left out: their dtype cannot be observed\n", layers->skipped);
    if (nonfinite_layers)
        printf("%zu layers hold %llu NaN and %llu infinite weights\n", nonfinite_layers, (unsigned long long)nan,
               (unsigned long long)inf);
}

/* Returns the median of the chosen candidates. Qparams that chose none are not counted. */
static int median_candidate(const struct layer *l)
{
    uint64_t all = 0, below = 0;
    int step = 0;
    for (int i = 0; i < l->search.steps; i++)
        all += l->candidates[i];
    while (step < l->search.steps && (below += l->candidates[step]) * 2 < all)
        step++;
    return step;
}

static double change(double before, double after) { return before > 0 ? 100 * (after - before) / before : 0; }

/* Prints the errors before and after the search. */
static void print_searches(const struct calibration *c)
{
    const struct layers *layers = &c->layers;
    int width = 6;
    double before = 0, after = 0;
    for (size_t i = 0; i < layers->count; i++)
        width = wider(width, layers->items[i].module);
    const bool optimal = c->bases.observers[BASE_WEIGHT].optimal;
    printf("\n%-*s  %12s %12s %8s", width, "module", "error before", "after", "change");
    printf(optimal ? "\n" : " %10s %6s %6s\n", "candidate", "of", "tried");
    for (size_t i = 0; i < layers->count; i++) {
        const struct layer *l = &layers->items[i];
        char module[MAX_NAME + 1];
        printf("%-*s  %12.6g %12.6g %7.1f%%", width, clean_name(l->ref->name, l->module, module),
               l->search.error_before, l->search.error, change(l->search.error_before, l->search.error));
        if (!optimal)
            printf(" %10d %6d %6d", median_candidate(l), l->search.steps, l->search.stop_step);
        if (l->search.fallback)
            printf("  unweighted: %s", l->search.fallback);
        printf("\n");
        before += l->search.error_before;
        after += l->search.error;
    }
    printf("%-*s  %12.6g %12.6g %7.1f%%\n", width, "total", before, after, change(before, after));
    if (optimal)
        printf("error: what the search makes small, at the scales of the range and at those found; no measure of the "
               "model's quality\n");
}

static void print_target(const struct target *t, const struct stream *s, int width, int sources)
{
    char module[MAX_NAME + 1], source[MAX_NAME + 1];
    printf("%-*s  %-6s ", width, clean_name(t->module, t->length, module), base_names[t->base]);
    if (!s) {
        printf("not recorded\n");
        return;
    }
    const struct result *scale = stream_result(s, "scale"), *global = stream_result(s, "global_scale");
    double min = NAN, max = NAN;
    if (scale)
        result_min_max(scale, &min, &max);
    printf("%-*s %7llu", sources, clean_name(s->found->name, strlen(s->found->name), source),
           (unsigned long long)s->counts.batches);
    if (scale)
        printf(" %12.6g %12.6g", min, max);
    else
        printf(" %12s %12s", "dynamic", "dynamic");
    if (global)
        printf(" %12.6g", result_value(global, 0));
    if (s->counts.nan + s->counts.inf > 0)
        printf("  %llu NaN, %llu infinite", (unsigned long long)s->counts.nan, (unsigned long long)s->counts.inf);
    printf("\n");
}

static void print_inputs_summary(const struct calibration *c)
{
    const struct base_observer *o = &c->bases.observers[BASE_INPUT];
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
        const struct stream *s = target_stream(a, &a->targets[i]);
        width = wider(width, a->targets[i].length);
        sources = s ? wider(sources, strlen(s->found->name)) : sources;
    }
    if (a->target_count > 0)
        printf("\n%-*s  %-6s %-*s %7s %12s %12s%s\n", width, "module", "base", sources, "recorded", "batches",
               "smallest", "largest", c->bases.observers[BASE_INPUT].global_scales ? "       global" : "");
    for (size_t i = 0; i < a->target_count; i++)
        print_target(&a->targets[i], target_stream(a, &a->targets[i]), width, sources);
    for (enum base b = BASE_INPUT; b < BASES; b++) {
        const struct base_counts t = activations_count(&c->activations, b);
        if (t.modules > 0)
            printf("%s: %zu of %zu modules recorded, %s\n", base_names[b], t.modules - t.missing, t.modules,
                   c->bases.observers[b].preset);
    }
    const size_t unused = recordings_unused(&a->recordings, &first);
    if (unused > 0) {
        char name[MAX_NAME + 1];
        printf("%zu recorded tensors were not needed, the first is '%s'\n", unused,
               clean_name(first->name, strlen(first->name), name));
    }
}

void calibration_print(const struct calibration *c)
{
    print_weights(c);
    if (c->bases.observers[BASE_WEIGHT].searches)
        print_searches(c);
    print_inputs_summary(c);
    if (c->activations.recordings.count > 0)
        print_activations(c);
}

void calibration_warn(const struct calibration *c)
{
    for (enum base b = BASE_INPUT; b < BASES; b++) {
        const struct base_counts t = activations_count(&c->activations, b);
        char name[MAX_NAME + 1];
        if (t.missing > 0)
            print_warning("%s: not recorded for %zu of %zu modules, whose scales are missing: '%s'%s", base_names[b],
                          t.missing, t.modules, clean_name(t.first_missing->module, t.first_missing->length, name),
                          t.missing > 1 ? " and others" : "");
    }
}
