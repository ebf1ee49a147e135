/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads the report and prints tables of at most 80 columns; names are cut in their middle. */
#include "quantize_summary.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/fail.h"
#include "names.h"
#include "program.h"

enum { WORST = 10 };

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

/* Sums of squares that are no floats give no error: null in the report, and first in the table. */
static double error_of(const cJSON *layer)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(layer, "relative_error");
    return cJSON_IsNumber(item) ? item->valuedouble : (double)INFINITY;
}

static int compare_errors(const void *a, const void *b)
{
    const double x = error_of(*(const cJSON *const *)a), y = error_of(*(const cJSON *const *)b);
    return (x < y) - (x > y);
}

/* Prints the error before and after the search of scales, in its own units. */
static void print_search(const cJSON *search)
{
    const double before = number_of(search, "error_before"), after = number_of(search, "error");
    if (search && before > 0)
        printf("  %+.1f %%: %.4g to %.4g", 100 * (after - before) / before, before, after);
    putchar('\n');
}

static void print_layer(const cJSON *layer, struct label label, int width)
{
    char name[MAX_NAME + 1];
    printf("%-*s %-20s ", width, clean_name(label, width, name), text_of(layer, "format"));
    if (isfinite(error_of(layer)))
        printf("%6.3f %%", 100 * error_of(layer));
    else
        printf("%6s %%", "-");
    print_search(cJSON_GetObjectItemCaseSensitive(layer, "search"));
}

static int print_layers(const cJSON *layers, bool all)
{
    const size_t count = (size_t)cJSON_GetArraySize(layers);
    const cJSON **sorted = malloc((count + 1) * sizeof *sorted), *item;
    struct label *names = malloc((count + 1) * sizeof *names);
    size_t n = 0;
    const int code = sorted && names ? EXIT_OK : print_error(EXIT_SYSTEM, "no memory for the summary");
    if (code == EXIT_OK) {
        cJSON_ArrayForEach(item, layers) { sorted[n++] = item; }
        qsort(sorted, n, sizeof *sorted, compare_errors);
    }
    const size_t shown = all || n < WORST ? n : WORST;
    const bool searched = n > 0 && cJSON_HasObjectItem(sorted[0], "search");
    for (size_t i = 0; i < shown; i++) {
        const char *name = text_of(sorted[i], "name");
        names[i] = (struct label){name, strlen(name)};
    }
    if (shown > 0) {
        if (shown < n)
            printf("\nthe %d layers with the largest errors:\n", WORST);
        const int width = fit_names(names, shown, searched ? 60 : 32, all);
        printf("%-*s %-20s %8s%s\n", width, "layer", "format", "error", searched ? "  searched" : "");
        for (size_t i = 0; i < shown; i++)
            print_layer(sorted[i], names[i], width);
    }
    if (shown < n)
        printf("... %zu more layers; --table lists all\n", n - shown);
    free(sorted);
    free(names);
    return code;
}

/* Prints the tensors that were left out, by reason, with one example each. */
static void print_left_out(const cJSON *left_out)
{
    static const char *const reasons[] = {"ignored", "not targeted", "not linear", "not floating point", "norm"};
    for (size_t r = 0; r < sizeof reasons / sizeof *reasons; r++) {
        const cJSON *item;
        char name[MAX_NAME + 1] = "";
        int count = 0;
        cJSON_ArrayForEach(item, left_out)
        {
            if (strcmp(text_of(item, "reason"), reasons[r]) != 0)
                continue;
            if (count++ == 0)
                clean_name((struct label){text_of(item, "name"), strlen(text_of(item, "name"))}, 46, name);
        }
        if (count > 0)
            printf("left out, %s: %d (%s%s)\n", reasons[r], count, name, count > 1 ? ", ..." : "");
    }
}

int quantize_summary(const char *report, double seconds, bool all_layers, bool quiet, bool may_be_empty)
{
    cJSON *json = cJSON_Parse(report);
    const cJSON *item, *layers = cJSON_GetObjectItemCaseSensitive(json, "layers");
    if (!json)
        return print_error(EXIT_SYSTEM, "no memory for the summary");
    const cJSON *warnings = cJSON_GetObjectItemCaseSensitive(json, "warnings");
    cJSON_ArrayForEach(item, warnings) { print_warning("%s", cJSON_IsString(item) ? item->valuestring : ""); }
    const bool part = cJSON_HasObjectItem(json, "part"), empty = cJSON_GetArraySize(layers) == 0;
    if (empty && !part)
        print_warning(
            "no layer was quantized: no weight fits --targets, or all that fit are ignored; --targets and --ignore "
            "match from the start of a module's name (re:.*q_proj finds every q_proj)");
    int code = EXIT_OK;
    if (!quiet) {
        const double before = number_of(json, "bytes_before"), after = number_of(json, "bytes_after");
        if (part)
            printf("part %.0f of %.0f: ", number_of(json, "part"), number_of(json, "parts"));
        printf("%d layers", cJSON_GetArraySize(layers));
        if (seconds > 0)
            printf(" quantized in %.1f s", seconds);
        if (!part)
            printf(": %.1f MB became %.1f MB (%.1f %%)", before * 1e-6, after * 1e-6,
                   before > 0 ? 100 * after / before : 0);
        if (seconds > 0 && !part)
            printf(", %.0f MB/s", before * 1e-6 / seconds);
        putchar('\n');
        print_left_out(cJSON_GetObjectItemCaseSensitive(json, "left_out"));
        code = print_layers(layers, all_layers);
        printf("\nerror: root of the squared error of the weights over the root of their squares\n");
        if (cJSON_HasObjectItem(cJSON_GetArrayItem(layers, 0), "search"))
            printf("searched: the error that the observer makes small, at the scales of the range and at those found;\n"
                   "no measure of the model's quality\n");
    }
    cJSON_Delete(json);
    return code == EXIT_OK && empty && !part && !may_be_empty ? EXIT_INCOMPLETE : code;
}
