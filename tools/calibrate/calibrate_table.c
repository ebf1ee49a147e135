/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prints the table of a calibration from its report. */
#include "schemes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "names.h"
#include "program.h"
#include "files/text.h"

enum { WORST = 10 };

static double number_of(const json_object *object, const char *key) { return json_number_of(object, key, (double)NAN); }

static unsigned long long count_of(const json_object *object, const char *key)
{
    uint64_t count = 0;
    json_integer(json_get(object, key), &count);
    return count;
}

static bool is_searched(const json_object *report) { return json_has(report, "error"); }

static bool is_optimal(const json_object *report) { return strncmp(json_text_of(report, "preset"), "qobs.", 5) == 0; }

/* ---- Order ------------------------------------------------------------------------------------------------------- */

static int compare_indices(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return ORDER(x->index, y->index);
}

/* The error of a search, else the largest scale, which is the coarsest step. */
static double badness_of(const json_object *item)
{
    const json_object *search = json_get(item, "search");
    const bool missing = json_has(item, "recorded") && !json_get(item, "recorded");
    const double badness = search ? number_of(search, "error") : number_of(item, "largest_scale");
    if (json_has(item, "base"))
        return missing ? (double)INFINITY : isnan(badness) ? -1 : badness; /* nothing is worse than nothing recorded */
    return isnan(badness) ? (double)INFINITY : badness;
}

/* ---- Table ------------------------------------------------------------------------------------------------------- */

static void print_nonfinite(const json_object *item)
{
    const unsigned long long nan = count_of(item, "nan"), inf = count_of(item, "inf");
    if (nan + inf > 0)
        printf("\n  %llu NaN, %llu infinite", nan, inf);
    printf("\n");
}

static const char *shape_text(const json_object *shape, char *text, size_t size)
{
    text[0] = '\0';
    json_each(item, shape)
        text_append(text, size, "%s%lld", *text ? " x " : "", (long long)json_object_get_int64(item.value));
    return text;
}

static void print_weights(struct ranked *ranked, size_t shown, bool all)
{
    const int width = fit_ranked(ranked, shown, 45, all);
    printf("%-*s  %-13s %-5s %11s %11s\n", width, "module", "weight", "dtype", "scales from", "to");
    for (size_t i = 0; i < shown; i++) {
        const json_object *l = ranked[i].item;
        char shape[96], module[MAX_NAME + 1];
        printf("%-*s  %-13s %-5s %11.5g %11.5g", width, clean_name(ranked[i].name, width, module),
               shape_text(json_get(l, "shape"), shape, sizeof shape), json_text_of(l, "dtype"),
               number_of(l, "smallest_scale"), number_of(l, "largest_scale"));
        print_nonfinite(l);
    }
}

/* Returns the median of the chosen candidates. Qparams that chose none are not counted. */
static int median_candidate(const json_object *candidates)
{
    uint64_t all = 0, below = 0;
    int step = 0;
    json_each(item, candidates) all += json_object_get_uint64(item.value);
    json_each(item, candidates)
    {
        if ((below += json_object_get_uint64(item.value)) * 2 >= all)
            break;
        step++;
    }
    return step;
}

static double change(double before, double after) { return before > 0 ? 100 * (after - before) / before : 0; }

/* Prints the errors before and after the search. */
static void print_searches(const json_object *report, struct ranked *ranked, size_t shown, bool all)
{
    const double before = number_of(report, "error_before"), after = number_of(report, "error");
    const bool optimal = is_optimal(report);
    const int width = fit_ranked(ranked, shown, optimal ? 36 : 46, all);
    printf("%-*s  %12s %12s %8s", width, "module", "error before", "after", "change");
    printf(optimal ? "\n" : " %9s\n", "candidate");
    for (size_t i = 0; i < shown; i++) {
        const json_object *search = json_get(ranked[i].item, "search");
        const double first = number_of(search, "error_before"), last = number_of(search, "error");
        char module[MAX_NAME + 1];
        printf("%-*s  %12.6g %12.6g %7.1f%%", width, clean_name(ranked[i].name, width, module), first, last,
               change(first, last));
        if (json_has(search, "candidates"))
            printf(" %4d/%4llu", median_candidate(json_get(search, "candidates")), count_of(search, "steps"));
        if (json_has(search, "fallback"))
            printf("\n  unweighted: %s", json_text_of(search, "fallback"));
        print_nonfinite(ranked[i].item);
    }
    printf("%-*s  %12.6g %12.6g %7.1f%%\n", width, "total", before, after, change(before, after));
    printf("error: what the search makes small, at the scales of the range and at those\nfound; no measure of the "
           "model's quality\n");
    if (!optimal)
        printf("candidate: the median of those chosen, and how many there are\n");
}

/* Prints how much was done, how long it took, and what was found. */
static void print_summary(const json_object *report, size_t count, size_t shown)
{
    const double megabytes = number_of(report, "bytes") * 1e-6, seconds = number_of(report, "seconds");
    unsigned long long scales = 0, nan = 0, inf = 0, nonfinite = 0;
    json_each(item, json_get(report, "layers"))
    {
        unsigned long long qparams = 1;
        json_each(size, json_get(item.value, "scale_shape")) qparams *= json_object_get_uint64(size.value);
        const unsigned long long nans = count_of(item.value, "nan"), infs = count_of(item.value, "inf");
        scales += qparams;
        nan += nans;
        inf += infs;
        nonfinite += nans + infs > 0;
    }
    if (shown < count)
        printf("... %zu more layers; --table lists all\n", count - shown);
    printf("%zu layers, %.1f MB, %llu scales%s, %s with %s", count, megabytes, scales,
           json_is_true(json_get(report, "zero_points")) ? " and zero points" : "", json_text_of(report, "scheme"),
           json_text_of(report, "preset"));
    if (seconds >= 0.05) /* a shorter time is mostly that of opening files */
        printf("\n%.1f s, %.0f MB/s", seconds, megabytes / seconds);
    printf("\n-> %s\n", json_text_of(report, "output"));
    if (count_of(report, "skipped") > 0)
        printf("%llu selected weights were left out: their dtype cannot be observed\n", count_of(report, "skipped"));
    if (nonfinite > 0)
        printf("%llu layers hold %llu NaN and %llu infinite weights\n", nonfinite, nan, inf);
}

/* ---- Activations ------------------------------------------------------------------------------------------------- */

static void print_target(const struct ranked *r, int width)
{
    char module[MAX_NAME + 1];
    printf("%-*s  %-6s ", width, clean_name(r->name, width, module), json_text_of(r->item, "base"));
    if (!json_get(r->item, "recorded")) {
        printf("not recorded\n");
        return;
    }
    printf("%7llu", count_of(r->item, "batches"));
    if (json_has(r->item, "smallest_scale"))
        printf(" %11.5g %11.5g", number_of(r->item, "smallest_scale"), number_of(r->item, "largest_scale"));
    else
        printf(" %11s %11s", "dynamic", "dynamic");
    if (json_has(r->item, "global_scale"))
        printf(" %11.5g", number_of(r->item, "global_scale"));
    print_nonfinite(r->item);
}

static int print_targets(const json_object *modules, bool all)
{
    const size_t count = json_count(modules), shown = all || count < WORST ? count : WORST;
    OWNED struct ranked *ranked = rank(modules, "module", badness_of);
    bool global = false;
    if (!ranked)
        return print_error(EXIT_SYSTEM, "no memory for the table");
    qsort(ranked, shown, sizeof *ranked, compare_indices); /* the worst in the order of the model */
    for (size_t i = 0; i < count; i++)
        global |= json_has(ranked[i].item, "global_scale");
    printf("\n");
    const int width = fit_ranked(ranked, shown, 52, all);
    printf("%-*s  %-6s %7s %11s %11s%s\n", width, "module", "base", "batches", "scales from", "to",
           global ? "      global" : "");
    for (size_t i = 0; i < shown; i++)
        print_target(&ranked[i], width);
    if (shown < count)
        printf("... %zu more; --table lists all\n", count - shown);
    return EXIT_OK;
}

static int print_activations(const json_object *activations, bool all)
{
    const json_object *modules = json_get(activations, "modules");
    const int code = json_count(modules) > 0 ? print_targets(modules, all) : EXIT_OK;
    json_each(base, json_get(activations, "bases"))
    {
        const unsigned long long count = count_of(base.value, "modules");
        printf("%s: %llu of %llu modules recorded, %s\n", base.key, count - count_of(base.value, "missing"), count,
               json_text_of(base.value, "preset"));
    }
    const char *first = json_text_of(activations, "first_unused");
    char name[MAX_NAME + 1];
    if (*first)
        printf("%llu recorded tensors were not needed, the first is\n'%s'\n", count_of(activations, "unused"),
               clean_name((struct label){first, strlen(first)}, MAX_NAME, name));
    return code;
}

static void print_inputs(const json_object *report)
{
    const char *inputs = json_text_of(report, "inputs");
    if (strcmp(inputs, "dynamic") == 0)
        printf("inputs: %s makes their scales while the model runs\n", json_text_of(report, "scheme"));
    else if (strcmp(inputs, "none") == 0 && json_has(report, "activations"))
        printf("inputs: are not quantized, no scales are written\n");
}

int calibrate_print(const json_object *report, bool all)
{
    const json_object *layers = json_get(report, "layers"), *activations = json_get(report, "activations");
    const size_t count = json_count(layers), shown = all || count < WORST ? count : WORST;
    OWNED struct ranked *ranked = rank(layers, "module", badness_of);
    if (!ranked)
        return print_error(EXIT_SYSTEM, "no memory for the table");
    if (shown < count)
        printf("the %d layers with the largest %s:\n", WORST, is_searched(report) ? "errors" : "scales");
    if (is_searched(report))
        print_searches(report, ranked, shown, all);
    else
        print_weights(ranked, shown, all);
    print_summary(report, count, shown);
    print_inputs(report);
    return activations ? print_activations(activations, all) : EXIT_OK;
}

bool calibrate_warn(const json_object *report)
{
    const json_object *activations = json_get(report, "activations");
    const char *inputs = json_text_of(report, "inputs");
    bool complete = !json_is_true(json_get(report, "incomplete"));
    print_warnings(report);
    if (!activations && (strcmp(inputs, "static") == 0 || strcmp(inputs, "global_scale") == 0)) {
        print_warning("%s needs <module>.input_%sscale, which takes recorded --activations: the scales of weights "
                      "alone are written (--preset input=none if no others are wanted)",
                      json_text_of(report, "scheme"), strcmp(inputs, "static") == 0 ? "" : "global_");
        complete = false;
    }
    json_each(base, json_get(activations, "bases"))
    {
        const unsigned long long missing = count_of(base.value, "missing");
        const char *first = json_text_of(base.value, "first_missing");
        char name[MAX_NAME + 1];
        if (missing == 0)
            continue;
        print_warning("%s: not recorded for %llu of %llu modules, whose scales are missing: '%s'%s", base.key, missing,
                      count_of(base.value, "modules"), clean_name((struct label){first, strlen(first)}, MAX_NAME, name),
                      missing > 1 ? " and others" : "");
        complete = false;
    }
    return complete;
}
