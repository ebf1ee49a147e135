/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads the report and prints tables of at most 80 columns; names are cut in their middle. */
#include "quantize_summary.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/fail.h"
#include "program.h"

enum { NAME_WIDTH = 46, WORST = 10 };

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

/* Copies a name, printable and with "..." in its middle if it is long. */
static void shorten(const char *name, char *text)
{
    const size_t length = strlen(name), head = NAME_WIDTH / 2 - 2, tail = NAME_WIDTH - head - 3;
    if (length <= NAME_WIDTH)
        snprintf(text, NAME_WIDTH + 1, "%s", name);
    else
        snprintf(text, NAME_WIDTH + 1, "%.*s...%s", (int)head, name, name + length - tail);
    make_printable(text);
}

static int compare_errors(const void *a, const void *b)
{
    const double x = number_of(*(const cJSON *const *)a, "relative_error");
    const double y = number_of(*(const cJSON *const *)b, "relative_error");
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

static int print_layers(const cJSON *layers, bool all)
{
    const size_t count = (size_t)cJSON_GetArraySize(layers);
    const cJSON **sorted = malloc((count + 1) * sizeof *sorted), *item;
    size_t n = 0;
    if (!sorted)
        return print_error(EXIT_SYSTEM, "no memory for the summary");
    cJSON_ArrayForEach(item, layers) { sorted[n++] = item; }
    qsort(sorted, n, sizeof *sorted, compare_errors);
    const size_t shown = all || n < WORST ? n : WORST;
    const bool searched = n > 0 && cJSON_HasObjectItem(sorted[0], "search");
    if (shown > 0)
        printf("\n%-*s %-20s %8s%s\n", NAME_WIDTH, shown < n ? "layers with the largest errors" : "layer", "format",
               "error", searched ? "  searched" : "");
    for (size_t i = 0; i < shown; i++) {
        char name[NAME_WIDTH + 1];
        shorten(text_of(sorted[i], "name"), name);
        printf("%-*s %-20s %6.3f %%", NAME_WIDTH, name, text_of(sorted[i], "format"),
               100 * number_of(sorted[i], "relative_error"));
        print_search(cJSON_GetObjectItemCaseSensitive(sorted[i], "search"));
    }
    free(sorted);
    return EXIT_OK;
}

/* Prints the tensors that were left out, by reason, with one example each. */
static void print_left_out(const cJSON *left_out)
{
    static const char *const reasons[] = {"ignored", "not targeted", "not linear", "not floating point", "norm"};
    for (size_t r = 0; r < sizeof reasons / sizeof *reasons; r++) {
        const cJSON *item;
        char name[NAME_WIDTH + 1] = "";
        int count = 0;
        cJSON_ArrayForEach(item, left_out)
        {
            if (strcmp(text_of(item, "reason"), reasons[r]) != 0)
                continue;
            if (count++ == 0)
                shorten(text_of(item, "name"), name);
        }
        if (count > 0)
            printf("left out, %s: %d (%s%s)\n", reasons[r], count, name, count > 1 ? ", ..." : "");
    }
}

int quantize_summary(const char *report, double seconds, bool all_layers, bool quiet)
{
    cJSON *json = cJSON_Parse(report);
    const cJSON *item, *layers = cJSON_GetObjectItemCaseSensitive(json, "layers");
    if (!json)
        return print_error(EXIT_SYSTEM, "no memory for the summary");
    const cJSON *warnings = cJSON_GetObjectItemCaseSensitive(json, "warnings");
    cJSON_ArrayForEach(item, warnings) { print_warning("%s", cJSON_IsString(item) ? item->valuestring : ""); }
    int code = EXIT_OK;
    if (!quiet) {
        const double before = number_of(json, "bytes_before"), after = number_of(json, "bytes_after");
        if (cJSON_HasObjectItem(json, "part"))
            printf("part %.0f of %.0f: ", number_of(json, "part"), number_of(json, "parts"));
        printf("%d layers", cJSON_GetArraySize(layers));
        if (seconds > 0)
            printf(" quantized in %.1f s", seconds);
        if (!cJSON_HasObjectItem(json, "part"))
            printf(": %.1f MB became %.1f MB (%.1f %%)", before * 1e-6, after * 1e-6,
                   before > 0 ? 100 * after / before : 0);
        if (seconds > 0 && !cJSON_HasObjectItem(json, "part"))
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
    return code;
}
