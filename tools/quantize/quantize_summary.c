/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads the report and prints tables of at most 80 columns; names are cut in their middle. */
#include "schemes.h"

#include "files/json.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "files/text.h"
#include "names.h"
#include "options.h"
#include "program.h"

enum { WORST = 10, MAX_CASTS = 16 };

/* Sums of squares that are no floats give no error: null in the report, and first in the table. */
static double error_of(const json_object *layer) { return json_number_of(layer, "relative_error", (double)INFINITY); }

void print_change(const json_object *search)
{
    const double before = json_number_of(search, "error_before", 0), after = json_number_of(search, "error", 0);
    if (search && before > 0)
        printf(" %+8.1f %%", 100 * (after - before) / before);
}

void explain_rounding(const json_object *layers)
{
    bool rounded = false;
    json_each(layer, layers) rounded |= json_has(layer.value, "rounding");
    if (rounded)
        printf("rounded: change of the error of the outputs, from the nearest codes to those of\n"
               "descent, which makes that of the weights larger\n");
}

static void print_layer(const struct ranked *r, int width)
{
    const json_object *layer = r->item;
    char name[MAX_NAME + 1];
    printf("%-*s %-20s ", width, clean_name(r->name, width, name), json_text_of(layer, "format"));
    if (isfinite(error_of(layer)))
        printf("%14.3f %%", 100 * error_of(layer));
    else
        printf("%14s %%", "-");
    print_change(json_get(layer, "search"));
    print_change(json_get(layer, "rounding"));
    putchar('\n');
}

static int print_layers(const json_object *layers, bool all)
{
    OWNED struct ranked *sorted = rank(layers, "name", error_of);
    const size_t n = json_count(layers), shown = all || n < WORST ? n : WORST;
    if (!sorted)
        return print_error(EXIT_SYSTEM, "no memory for the summary");
    const bool searched = n > 0 && json_has(sorted[0].item, "search");
    const bool rounded = n > 0 && json_has(sorted[0].item, "rounding");
    if (shown > 0) {
        if (shown < n)
            printf("\nthe %d layers with the largest errors:\n", WORST);
        const int width = fit_ranked(sorted, shown, 38 + 11 * (searched + rounded), all);
        printf("%-*s %-20s %16s%s%s\n", width, "layer", "format", "error of weights", searched ? "   searched" : "",
               rounded ? "    rounded" : "");
        for (size_t i = 0; i < shown; i++)
            print_layer(&sorted[i], width);
    }
    if (shown < n)
        printf("... %zu more layers; --table lists all\n", n - shown);
    return EXIT_OK;
}

/* Matrices that were left out for one reason. */
struct left_out {
    const char *reason, *names[2]; /* of the first two */
    int count;
};

enum { MAX_REASONS = 16 };

/* Counts the matrices that were left out. Returns the number of reasons. */
static size_t count_left_out(const json_object *json, struct left_out found[MAX_REASONS])
{
    size_t n = 0;
    json_each(item, json)
    {
        const char *reason = json_text_of(item.value, "reason");
        size_t i = 0;
        while (i < n && strcmp(found[i].reason, reason) != 0)
            i++;
        if (i == MAX_REASONS)
            continue;
        if (i == n)
            found[n++] = (struct left_out){.reason = reason};
        if (found[i].count < 2)
            found[i].names[found[i].count] = json_text_of(item.value, "name");
        found[i].count++;
    }
    return n;
}

static void print_left_out(const json_object *json)
{
    struct left_out found[MAX_REASONS];
    const size_t n = count_left_out(json, found);
    for (size_t i = 0; i < n; i++) {
        enum { ROOM = 46 };
        char name[MAX_NAME + 1];
        const char *const *names = found[i].names;
        const int shown = found[i].count > 1 && strlen(names[0]) + strlen(names[1]) + 2 <= ROOM ? 2 : 1;
        printf("left out, %s: %d (", found[i].reason, found[i].count);
        for (int k = 0; k < shown; k++) {
            clean_name((struct label){names[k], strlen(names[k])}, ROOM, name);
            printf("%s%s", k ? ", " : "", name);
        }
        printf("%s)\n", found[i].count > shown ? ", ..." : "");
    }
}

/* Says why nothing was quantized, by the most frequent reason, and with `hints` how names match. */
static void warn_of_nothing(const json_object *json, bool hints)
{
    struct left_out found[MAX_REASONS], most = {"the model has no matrix", {""}, 0};
    const size_t n = count_left_out(json, found);
    for (size_t i = 0; i < n; i++)
        most = found[i].count > most.count ? found[i] : most;
    const bool by_name = hints && (strcmp(most.reason, "ignored") == 0 || strcmp(most.reason, "not targeted") == 0);
    print_warning("no layer was quantized: left out, %s: %d (%s)%s", most.reason, most.count, most.names[0],
                  by_name ? "; --targets and --ignore match from the start of a module's name (re:.*q_proj finds every "
                            "q_proj)"
                          : "");
}

void print_findings(const json_object *findings)
{
    size_t count = 0;
    json_each(item, findings)
    {
        const char *module = json_text_of(item.value, "module");
        if (count++ < WORST)
            print_warning("%s%s%s", module, *module ? ": " : "", json_text_of(item.value, "finding"));
    }
    if (count > WORST)
        print_warning("%zu more findings", count - WORST);
}

void quantize_print_findings(const char *report)
{
    OWNED_JSON json_object *json = NULL;
    if (report && json_parse(&json, "quantize", "report", report, strlen(report), NULL) == 0)
        print_findings(json_get(json, "findings"));
}

/* Says where the facts about the architecture come from. */
static void print_knowledge(const json_object *knowledge)
{
    const char *source = json_text_of(knowledge, "source"), *vllm = json_text_of(knowledge, "vllm");
    const bool without_vllm = strcmp(vllm, "0") == 0; /* as python -m libqobs.architectures writes it */
    if (json_has(knowledge, "by_names"))
        printf("architecture: none; the targets are names, and no runtime is known to load this\n");
    else if (json_has(knowledge, "unknown"))
        printf("architecture: '%s' is not known; layers by the general rule\n", json_text_of(knowledge, "unknown"));
    else
        printf("architecture: from %s, transformers %s, %s%s\n",
               strcmp(source, "table") == 0       ? "the program's table"
               : strcmp(source, "file") == 0      ? "the file"
               : strcmp(source, "installed") == 0 ? "the installed packages"
                                                  : "the general rule",
               json_text_of(knowledge, "transformers"), without_vllm ? "nothing of vLLM" : "vLLM ",
               without_vllm ? "" : vllm);
}

/* Says where each scheme runs. `transformers_version` has all its numbers. */
static void print_runtimes(const json_object *runtimes, const char *transformers_version)
{
    const char *dot = strchr(transformers_version, '.');
    const int length = dot ? (int)(dot - transformers_version + 1 + (ptrdiff_t)strcspn(dot + 1, ".")) : 60;
    json_each(item, runtimes)
    {
        const char *vllm = json_text(json_get(item.value, "vllm")), *group = json_text_of(item.value, "group");
        const bool on_cpus = json_is_true(json_get(item.value, "vllm_cpu"));
        const bool here = json_is_true(json_get(item.value, "this_cpu"));
        const char *version = json_text(json_get(item.value, "compressed_tensors"));
        const char *packages = json_text(json_get(item.value, "packages"));
        const bool transformers = json_is_true(json_get(item.value, "transformers"));
        char line[400];
        snprintf(line, sizeof line, "%.40s: vLLM %.20s %.100s%s; transformers %.*s%s%.100s", group,
                 json_text_of(item.value, "vllm_version"), vllm ? vllm : "is not known to load it",
                 on_cpus && !here ? " (this one has none)" : "", length, transformers_version,
                 !transformers ? " does not load it"
                 : packages    ? " with "
                 : version     ? " with compressed-tensors from "
                               : "",
                 !transformers ? ""
                 : packages    ? packages
                 : version     ? version
                               : "");
        print_wrapped(line, 0, 2);
        if (vllm && !on_cpus)
            printf("%.40s: no runtime has kernels for it on CPUs%s\n", group,
                   transformers ? "; transformers dequantizes it there" : "");
    }
}

/* Says how many blocks of weights in codes keep all their numbers, for each format that they had and have. */
static void print_casts(const json_object *layers)
{
    struct {
        const char *from, *to;
        double blocks, lossless;
    } found[MAX_CASTS] = {{.blocks = 0}};
    size_t n = 0;
    json_each(layer, layers)
    {
        const json_object *cast = json_get(layer.value, "cast");
        const char *from = json_text_of(cast, "source"), *to = json_text_of(layer.value, "format");
        size_t i = 0;
        while (i < n && (strcmp(found[i].from, from) != 0 || strcmp(found[i].to, to) != 0))
            i++;
        if (!cast || i == MAX_CASTS)
            continue;
        if (i == n) {
            found[n].from = from;
            found[n++].to = to;
        }
        found[i].blocks += json_number_of(cast, "blocks", 0);
        found[i].lossless += json_number_of(cast, "lossless", 0);
    }
    for (size_t i = 0; i < n; i++)
        printf("%s to %s: %.0f of %.0f blocks lossless\n", found[i].from, found[i].to, found[i].lossless,
               found[i].blocks);
}

/* The first line: layers, seconds, sizes, speed. */
static void print_sizes(const json_object *json, double seconds)
{
    const bool part = json_has(json, "part");
    const double before = json_number_of(json, "bytes_before", 0), after = json_number_of(json, "bytes_after", 0);
    if (part)
        printf("part %.0f of %.0f: ", json_number_of(json, "part", 0), json_number_of(json, "parts", 0));
    printf("%zu layers", json_count(json_get(json, "layers")));
    if (seconds > 0)
        printf(" quantized in %.1f s", seconds);
    if (!part)
        printf(": %.1f MB became %.1f MB (%.1f %%)", before * 1e-6, after * 1e-6,
               before > 0 ? 100 * after / before : 0);
    if (seconds > 0 && !part && before * 1e-6 >= seconds) /* a search is bound by arithmetic, not by bytes */
        printf(", %.0f MB/s", before * 1e-6 / seconds);
    putchar('\n');
}

/* The tables, and what their numbers are. Returns the exit status. */
static int print_results(const json_object *json, bool all_layers)
{
    const json_object *layers = json_get(json, "layers");
    json_each(item, json_get(json, "dequantized"))
        printf("dequantized first, %s: %.0f\n", item.key, json_object_get_double(item.value));
    print_casts(layers);
    print_left_out(json_get(json, "left_out"));
    print_knowledge(json_get(json, "knowledge"));
    print_runtimes(json_get(json, "runtimes"), json_text_of(json_get(json, "knowledge"), "transformers"));
    const int code = print_layers(layers, all_layers);
    explain_error_of_weights();
    if (json_count(json_get(json, "dequantized")) > 0)
        printf("weights: those of the input, dequantized; its own error comes on top\n");
    if (json_has(json_at(layers, 0), "search"))
        printf("searched: change of the error that the observer makes small, from the scales of\n"
               "the range to those found; no measure of the model's quality\n");
    explain_rounding(layers);
    return code;
}

int quantize_summary(const char *report, double seconds, const struct summary_options *options)
{
    OWNED_JSON json_object *json = NULL;
    if (json_parse(&json, "quantize", "report", report, strlen(report), NULL) != 0)
        return print_error(EXIT_SYSTEM, "no memory for the summary");
    const json_object *layers = json_get(json, "layers");
    const bool used = print_unused(json);
    warn_of_table(options->all_layers, options->quiet);
    print_warnings(json);
    const json_object *findings = json_get(json, "findings");
    print_findings(findings);
    const bool part = json_has(json, "part");
    const bool empty =
        json_count(layers) == 0 && json_number_of(json, "activation_scales", 0) == 0; /* of a cache alone */
    const bool compatible = strcmp(json_text_of(json, "compat"), "vllm") != 0;
    const bool unknown = json_has(json_get(json, "knowledge"), "unknown") && !options->accept_unknown;
    const bool lacking = !used || json_is_true(json_get(json, "incomplete"));
    if (!compatible && unknown)
        print_warning("the exit status is 3 because the architecture is not known; --accept-unknown makes it 0");
    const bool incomplete = !compatible && ((empty && !part) || json_count(findings) > 0 || unknown || lacking);
    if (empty && !part)
        warn_of_nothing(json_get(json, "left_out"), used);
    int code = EXIT_OK;
    if (!options->quiet) {
        print_sizes(json, seconds);
        code = print_results(json, options->all_layers);
    }
    return code == EXIT_OK && incomplete ? EXIT_INCOMPLETE : code;
}
