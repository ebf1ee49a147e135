/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "quantize/quantize_gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "files/json.h"
#include "files/status.h"
#include "files/text.h"
#include "names.h"
#include "options.h"
#include "program.h"

enum { WORST = 10 };

void print_gguf_schemes(void)
{
    const struct gguf_scheme *scheme;
    char text[512] = "schemes of GGUF files: ";
    for (size_t i = 0; (scheme = gguf_scheme_at(i)); i++)
        text_append(text, sizeof text, "%s%s", i ? ", " : "", scheme->name);
    print_wrapped(text, 0, 2);
}

/* ---- Summary ----------------------------------------------------------------------------------------------------- */

static double error_of(const json_object *layer) { return json_number_of(layer, "relative_error", 0); }

static double bits_of(double bytes, double elements) { return elements > 0 ? 8 * bytes / elements : 0; }

static void print_types(const json_object *types)
{
    json_each(item, types)
    {
        const double bytes = json_number_of(item.value, "bytes", 0);
        printf("  %-8s %8.0f tensors %12.3f MB %7.4g bits\n", json_text_of(item.value, "type"),
               json_number_of(item.value, "tensors", 0), bytes * 1e-6,
               bits_of(bytes, json_number_of(item.value, "elements", 0)));
    }
}

static int print_layers(const json_object *layers, bool all)
{
    OWNED struct ranked *sorted = rank(layers, "name", error_of);
    const size_t n = json_count(layers), shown = all || n < WORST ? n : WORST;
    if (!sorted)
        return print_error(EXIT_SYSTEM, "no memory for the table");
    const int width = fit_ranked(sorted, shown, 47, all);
    for (size_t i = 0; i < shown; i++) {
        const json_object *layer = sorted[i].item;
        char name[MAX_NAME + 1];
        printf("%-*s %-7s to %-7s", width, clean_name(sorted[i].name, width, name), json_text_of(layer, "source"),
               json_text_of(layer, "format"));
        if (json_has(layer, "relative_error"))
            printf(" %10.3f %%", 100 * error_of(layer));
        print_change(json_get(layer, "rounding"));
        putchar('\n');
    }
    if (shown < n)
        printf("... %zu more tensors; --table lists all\n", n - shown);
    explain_rounding(layers);
    return EXIT_OK;
}

static int print_summary(const json_object *report, bool all)
{
    const json_object *layers = json_get(report, "layers");
    const bool dry = !json_get(report, "out");
    const double before = json_number_of(report, "bytes_before", 0), after = json_number_of(report, "bytes_after", 0);
    const bool descent = strcmp(json_text_of(report, "rounding"), "descent") == 0;
    printf("%zu of %.0f tensors%s%s: %.1f MB %s %.1f MB (%.1f %%)\n", json_count(layers),
           json_number_of(report, "tensors", 0), dry ? "" : " quantized", descent ? ", codes by descent" : "",
           before * 1e-6, dry ? "would become" : "became", after * 1e-6, before > 0 ? 100 * after / before : 0);
    print_types(json_get(report, "types"));
    return print_layers(layers, all);
}

static bool warn(const json_object *report)
{
    const json_object *findings = json_get(report, "findings");
    print_findings(findings);
    print_warnings(report);
    return json_count(findings) == 0;
}

/* ---- Run --------------------------------------------------------------------------------------------------------- */

/* The report is no input. */
static int check_report(const struct gguf_quantize_args *args, const struct table_run *run)
{
    const struct output_option report = {"--json", run->report, true};
    RETURN_IF_NOT_OK(check_output_apart(&report, args->model, false));
    for (size_t i = 0; i < args->importance.count; i++)
        RETURN_IF_NOT_OK(check_output_apart(&report, args->importance.items[i], false));
    for (size_t i = 0; i < args->states.count; i++)
        RETURN_IF_NOT_OK(check_output_apart(&report, args->states.items[i], true));
    return EXIT_OK;
}

int quantize_gguf(struct gguf_quantize_args *args, struct table_run *run)
{
    RELEASED_BY(report_close) struct report_file report = {0};
    OWNED char *text = NULL;
    struct fail f;
    run->out = args->out;
    RETURN_IF_NOT_OK(check_report(args, run));
    RETURN_IF_NOT_OK(report_open(&report, run->report));
    args->progress = table_run_progress;
    args->context = run;
    const int status = gguf_quantize(args, &text, &f);
    progress_stop(&run->progress);
    if (run->code != EXIT_OK)
        return run->code;
    if (status != QOBS_OK) {
        qobs_error error = {0};
        const struct scheme_words words = {.command = "quantize", .scheme = args->scheme};
        if (status == QOBS_ERROR_FINDINGS)
            quantize_print_findings(text);
        give_error(&error, status, &f);
        return print_member_error(&words, "scheme tensor-type importance states setting search", &error);
    }
    if (!run->started) /* nothing was in work, so that nothing is checked yet */
        RETURN_IF_NOT_OK(table_run_check(run));
    return table_run_finish(run, &report, text, print_summary, warn);
}
