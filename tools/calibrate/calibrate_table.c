/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prints the table of a calibration. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate.h"
#include "names.h"

static void shape_text(int ndim, const int64_t *shape, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d ? " x " : "", (long long)shape[d]);
}

enum { WORST = 10 };

/* ---- Order ------------------------------------------------------------------------------------------------------- */

/* Layers by what is bad about them: the error of a search, else the largest scale, which is the coarsest step. */
struct ranked {
    const struct layer *layer;
    double badness;
    struct label name; /* of the module, as the table has it */
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->badness != y->badness)
        return x->badness < y->badness ? 1 : -1;
    return (x->layer > y->layer) - (x->layer < y->layer);
}

/* Returns the layers, the worst first, to be freed. NULL: no memory. */
static struct ranked *rank_layers(const struct calibration *c)
{
    const struct layers *layers = &c->layers;
    struct ranked *ranked = malloc((layers->count + 1) * sizeof *ranked);
    for (size_t i = 0; ranked && i < layers->count; i++) {
        const struct layer *l = &layers->items[i];
        const double badness = c->bases.observers[BASE_WEIGHT].searches ? l->search.error : l->max_scale;
        ranked[i] = (struct ranked){l, isnan(badness) ? (double)INFINITY : badness, {l->ref->name, l->module}};
    }
    if (ranked && layers->count > 0)
        qsort(ranked, layers->count, sizeof *ranked, compare_ranked);
    return ranked;
}

/* Fits the names of the first `shown` layers. */
static int fit_ranked(struct ranked *ranked, size_t shown, int others, bool all)
{
    struct label *names = malloc((shown + 1) * sizeof *names);
    int width = MAX_NAME;
    for (size_t i = 0; names && i < shown; i++)
        names[i] = ranked[i].name;
    if (names)
        width = fit_names(names, shown, others, all);
    for (size_t i = 0; names && i < shown; i++)
        ranked[i].name = names[i];
    free(names);
    return width;
}

/* ---- Table ------------------------------------------------------------------------------------------------------- */

static void print_weights(struct ranked *ranked, size_t shown, bool all)
{
    const int width = fit_ranked(ranked, shown, 45, all);
    printf("%-*s  %-13s %-5s %11s %11s\n", width, "module", "weight", "dtype", "smallest", "largest");
    for (size_t i = 0; i < shown; i++) {
        const struct layer *l = ranked[i].layer;
        char weight[96], module[MAX_NAME + 1];
        shape_text(l->ref->ndim, l->ref->shape, weight, sizeof weight);
        printf("%-*s  %-13s %-5s %11.5g %11.5g", width, clean_name(ranked[i].name, width, module), weight,
               l->ref->dtype, l->min_scale, l->max_scale);
        if (l->counts.nan + l->counts.inf > 0)
            printf("\n  %llu NaN, %llu infinite", (unsigned long long)l->counts.nan, (unsigned long long)l->counts.inf);
        printf("\n");
    }
}

/* Prints how much was done, how long it took, and what was found. */
static void print_summary(const struct calibration *c, size_t shown)
{
    const struct layers *layers = &c->layers;
    const bool zero_points = c->bases.observers[BASE_WEIGHT].zero_points;
    const double megabytes = (double)layers->bytes * 1e-6;
    int64_t qparams = 0;
    uint64_t nan = 0, inf = 0;
    size_t nonfinite_layers = 0;
    for (size_t i = 0; i < layers->count; i++) {
        const struct layer *l = &layers->items[i];
        qparams += l->qparams;
        nan += l->counts.nan;
        inf += l->counts.inf;
        nonfinite_layers += l->counts.nan + l->counts.inf > 0;
    }
    if (shown < layers->count)
        printf("... %zu more layers; --table lists all\n", layers->count - shown);
    printf("%zu layers, %.1f MB, %lld scales%s, %s with %s", layers->count, megabytes, (long long)qparams,
           zero_points ? " and zero points" : "", c->scheme->name, c->bases.observers[BASE_WEIGHT].preset);
    if (c->seconds >= 0.05) /* a shorter time is mostly that of opening files */
        printf("\n%.1f s, %.0f MB/s", c->seconds, megabytes / c->seconds);
    printf("\n-> %s\n", c->out);
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
static void print_searches(const struct calibration *c, struct ranked *ranked, size_t shown, bool all)
{
    double before = 0, after = 0;
    for (size_t i = 0; i < c->layers.count; i++) {
        before += ranked[i].layer->search.error_before;
        after += ranked[i].layer->search.error;
    }
    const bool optimal = c->bases.observers[BASE_WEIGHT].optimal;
    const int width = fit_ranked(ranked, shown, optimal ? 36 : 46, all);
    printf("%-*s  %12s %12s %8s", width, "module", "error before", "after", "change");
    printf(optimal ? "\n" : " %9s\n", "candidate");
    for (size_t i = 0; i < shown; i++) {
        const struct layer *l = ranked[i].layer;
        char module[MAX_NAME + 1];
        printf("%-*s  %12.6g %12.6g %7.1f%%", width, clean_name(ranked[i].name, width, module), l->search.error_before,
               l->search.error, change(l->search.error_before, l->search.error));
        if (!optimal)
            printf(" %4d/%4d", median_candidate(l), l->search.steps);
        if (l->search.fallback)
            printf("\n  unweighted: %s", l->search.fallback);
        if (l->counts.nan + l->counts.inf > 0)
            printf("\n  %llu NaN, %llu infinite", (unsigned long long)l->counts.nan, (unsigned long long)l->counts.inf);
        printf("\n");
    }
    printf("%-*s  %12.6g %12.6g %7.1f%%\n", width, "total", before, after, change(before, after));
    if (optimal)
        printf("error: what the search makes small, at the scales of the range and at those\nfound; no measure of the "
               "model's quality\n");
}

static void print_target(const struct target *t, const struct stream *s, struct label name, int width)
{
    char module[MAX_NAME + 1];
    printf("%-*s  %-6s ", width, clean_name(name, width, module), base_names[t->base]);
    if (!s) {
        printf("not recorded\n");
        return;
    }
    const struct result *scale = stream_result(s, "scale"), *global = stream_result(s, "global_scale");
    double min = NAN, max = NAN;
    if (scale)
        result_min_max(scale, &min, &max);
    printf("%7llu", (unsigned long long)s->counts.batches);
    if (scale)
        printf(" %11.5g %11.5g", min, max);
    else
        printf(" %11s %11s", "dynamic", "dynamic");
    if (global)
        printf(" %11.5g", result_value(global, 0));
    if (s->counts.nan + s->counts.inf > 0)
        printf("\n  %llu NaN, %llu infinite", (unsigned long long)s->counts.nan, (unsigned long long)s->counts.inf);
    printf("\n");
}

static void print_inputs_summary(const struct calibration *c)
{
    const struct base_observer *o = &c->bases.observers[BASE_INPUT];
    const char *const scheme = c->scheme->name;
    if (o->needs == NEEDS_DYNAMIC)
        printf("inputs: %s makes their scales while the model runs\n", scheme);
    else if (o->needs == NEEDS_NOTHING && c->activations.recordings.count > 0)
        printf("inputs: are not quantized, no scales are written\n");
}

static double badness_of(const struct activations *a, size_t index)
{
    const struct stream *s = target_stream(a, &a->targets[index]);
    const struct result *scale = s ? stream_result(s, "scale") : NULL;
    double min, max = -1;
    if (scale)
        result_min_max(scale, &min, &max);
    return s ? max : (double)INFINITY; /* nothing is worse than nothing recorded */
}

/* Returns true if fewer than WORST targets are worse than this one. */
static bool is_among_worst(const struct activations *a, size_t index)
{
    const double badness = badness_of(a, index);
    size_t worse = 0;
    for (size_t i = 0; i < a->target_count && worse < WORST; i++) {
        const double other = badness_of(a, i);
        worse += other > badness || (other == badness && i < index);
    }
    return worse < WORST;
}

static int print_targets(const struct calibration *c, bool all)
{
    const struct activations *a = &c->activations;
    size_t *chosen = malloc(a->target_count * sizeof *chosen), shown = 0;
    struct label *names = malloc(a->target_count * sizeof *names);
    for (size_t i = 0; chosen && names && i < a->target_count; i++)
        if (all || is_among_worst(a, i)) {
            names[shown] = (struct label){a->targets[i].module, a->targets[i].length};
            chosen[shown++] = i;
        }
    if (chosen && names) {
        printf("\n");
        const int width = fit_names(names, shown, 52, all);
        printf("%-*s  %-6s %7s %11s %11s%s\n", width, "module", "base", "batches", "smallest", "largest",
               c->bases.observers[BASE_INPUT].global_scales ? "      global" : "");
        for (size_t i = 0; i < shown; i++)
            print_target(&a->targets[chosen[i]], target_stream(a, &a->targets[chosen[i]]), names[i], width);
        if (shown < a->target_count)
            printf("... %zu more; --table lists all\n", a->target_count - shown);
    }
    const int code = chosen && names ? EXIT_OK : print_error(EXIT_SYSTEM, "no memory for the table");
    free(chosen);
    free(names);
    return code;
}

static int print_activations(const struct calibration *c, bool all)
{
    const struct activations *a = &c->activations;
    const struct tensor_ref *first;
    const int code = a->target_count > 0 ? print_targets(c, all) : EXIT_OK;
    for (enum base b = BASE_INPUT; b < BASES; b++) {
        const struct base_counts t = activations_count(&c->activations, b);
        if (t.modules > 0)
            printf("%s: %zu of %zu modules recorded, %s\n", base_names[b], t.modules - t.missing, t.modules,
                   c->bases.observers[b].preset);
    }
    const size_t unused = recordings_unused(&a->recordings, &first);
    if (unused > 0) {
        char name[MAX_NAME + 1];
        printf("%zu recorded tensors were not needed, the first is\n'%s'\n", unused,
               clean_name((struct label){first->name, strlen(first->name)}, MAX_NAME, name));
    }
    return code;
}

int calibration_print(const struct calibration *c, bool all)
{
    struct ranked *ranked = rank_layers(c);
    if (!ranked)
        return print_error(EXIT_SYSTEM, "no memory for the table");
    const bool searches = c->bases.observers[BASE_WEIGHT].searches;
    const size_t shown = all || c->layers.count < WORST ? c->layers.count : WORST;
    if (shown < c->layers.count)
        printf("the %d layers with the largest %s:\n", WORST, searches ? "errors" : "scales");
    if (searches)
        print_searches(c, ranked, shown, all);
    else
        print_weights(ranked, shown, all);
    print_summary(c, shown);
    print_inputs_summary(c);
    free(ranked);
    return c->activations.recordings.count > 0 ? print_activations(c, all) : EXIT_OK;
}

/* True if the scheme stores scales of inputs and nothing was recorded. */
static bool lacks_activations(const struct calibration *c)
{
    return c->bases.observers[BASE_INPUT].needs >= NEEDS_GLOBAL_SCALE && c->activations.recordings.count == 0;
}

bool calibration_warn(const struct calibration *c)
{
    bool complete = true;
    if (lacks_activations(c)) {
        print_warning("%s needs <module>.input_%sscale, which takes recorded --activations: the scales of weights "
                      "alone are written (--preset input=none if no others are wanted)",
                      c->scheme->name, c->bases.observers[BASE_INPUT].needs == NEEDS_GLOBAL_SCALE ? "global_" : "");
        complete = false;
    }
    for (enum base b = BASE_INPUT; b < BASES; b++) {
        const struct base_counts t = activations_count(&c->activations, b);
        char name[MAX_NAME + 1];
        if (t.missing > 0) {
            print_warning("%s: not recorded for %zu of %zu modules, whose scales are missing: '%.200s'%s",
                          base_names[b], t.missing, t.modules,
                          clean_name((struct label){t.first_missing->module, t.first_missing->length}, MAX_NAME, name),
                          t.missing > 1 ? " and others" : "");
            complete = false;
        }
    }
    return complete;
}
