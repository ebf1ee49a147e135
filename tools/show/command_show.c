/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs show: shows the histogram of tensors and the range that an observer chooses for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations/recordings.h"
#include "files/status.h"
#include "files/tensor_files.h"
#include "files/text.h"
#include "commands.h"
#include "outputs.h"
#include "program.h"
#include "show/chart.h"
#include "show/compare.h"

struct show_options {
    struct machine_options machine;
    const char *base_name, *out, *preset, *compare;
    const char **settings, **importance;
    size_t setting_count, importance_count;
    int64_t qparam, bins;
    bool json, logarithmic;
};

#define AT(member) offsetof(struct show_options, member)
static const struct option_row rows[] = {
    PRESET_ROW,
    TEXT_ROW("compare", "A,B,C", compare, "compare the ranges and grids of several observers",
             "in one picture, with a table of range, scale, clipped share and errors; each may have settings: "
             "\"llmc.memoryless_mse norm=2, torch.MinMaxObserver\""),
    SETTING_ROW(". With --compare, observers without it go without"),
    LIST_ROW("importance", "FILE[:TENSOR]", importance, importance_count,
             "activations that weigh the columns, with --compare",
             "for observers that support it and for the column of weighted errors; may be repeated"),
    BASE_NAME_ROW,
    INTEGER_ROW("qparam", "INDEX", qparam, 0, INT32_MAX, "only the elements that share scale INDEX",
                "counted from 0 (default: all elements)"),
    INTEGER_ROW("bins", "N", bins, 1, 65536, "number of bins, 1 to 65536",
                "default 240; in the terminal several share a line"),
    FLAG_ROW("log", logarithmic, "bars follow the logarithm", NULL),
    OUT_ROW("FILE", out, "draw a picture instead: .svg or .png", NULL),
    JSON_ROW("the numbers", "edges, counts, ranges, clipped share"),
    ISA_ROW,
    THREADS_ROW,
};

static int check(const struct show_options *r, int count)
{
    if (!r->preset && !r->compare)
        return print_error(EXIT_USAGE, "show: --preset or --compare is missing (see qobs show -h)");
    if (r->preset && r->compare)
        return print_error(EXIT_USAGE, "show: --preset and --compare exclude each other");
    if (!r->compare && r->importance_count > 0)
        return print_error(EXIT_USAGE, "show: --importance needs --compare");
    if (count == 0)
        return print_error(EXIT_USAGE, "show: no tensor given");
    if (r->out && r->json)
        return print_error(EXIT_USAGE, "show: --out and --json exclude each other");
    return r->out ? chart_check_picture(r->out) : EXIT_OK;
}

static int configure(const struct show_options *r, qobs_config **config)
{
    qobs_error error;
    if (qobs_config_create(config, r->preset, NULL, &error) != QOBS_OK)
        return print_preset_error(&error, "--preset", r->preset);
    RETURN_IF_NOT_OK(check_apart(r->settings, r->setting_count, "base_name", "--base-name", r->base_name));
    RETURN_IF_NOT_OK(set_options(*config, r->settings, r->setting_count));
    if (r->base_name && qobs_config_set(*config, "base_name", r->base_name, &error) != QOBS_OK)
        return print_status_error(&error, "--base-name");
    return EXIT_OK;
}

/* Makes the title: name, dtype and shape of the first tensor, shortened. */
static void make_title(char *title, size_t size, const struct tensor_ref *ref, int count, int64_t qparam)
{
    struct fail clean;
    char more[64] = "", part[64] = "";
    if (count > 1)
        snprintf(more, sizeof more, " and %d more", count - 1);
    if (qparam >= 0)
        snprintf(part, sizeof part, ", qparam %lld", (long long)qparam);
    fail(&clean, "%.90s%s %s %s%s%s", ref->name, strlen(ref->name) > 90 ? "..." : "", dtype_name(ref->dtype),
         SHAPE_WORDS(ref->ndim, ref->shape), more, part);
    snprintf(title, size, "%s", clean.message);
}

/* Opens tensors. Sets *title to that of the first. */
static int open_tensors(struct tensor_files *files, qobs_tensor *tensors, char *const *specs, size_t count,
                        int64_t qparam, char *title, size_t title_size)
{
    const struct tensor_ref *ref;
    struct fail f;
    for (size_t i = 0; i < count; i++) {
        if (tensors_spec(files, specs[i], &ref, &f) || tensor_of_ref(ref, &tensors[i], &f))
            return print_failure(&f, "");
        if (i == 0 && title)
            make_title(title, title_size, ref, (int)count, qparam);
    }
    return EXIT_OK;
}

/* Shows one observer. */
static int show_one(const struct show_options *r, const struct chart_source *source, const struct chart *wanted)
{
    RELEASED_BY(spans_free) struct spans spans = {0};
    RELEASED_BY(results_free) struct results results = {0};
    RELEASED_BY(chart_free) struct chart chart = *wanted;
    chart.preset = r->preset;
    RETURN_IF_NOT_OK(spans_observe(&spans, &results, source));
    RETURN_IF_NOT_OK(chart_make(&chart, source, &spans));
    RETURN_IF_NOT_OK(check_inputs());
    if (r->out)
        return chart_draw(&chart, r->out);
    if (r->json)
        return chart_print_json(&chart);
    chart_print(&chart);
    return EXIT_OK;
}

static int show_several(const struct show_options *r, const struct chart_source *tensors, const struct chart *chart)
{
    const struct compare_request request = {.presets = r->compare,
                                            .settings = r->settings,
                                            .setting_count = r->setting_count,
                                            .base = r->base_name,
                                            .source = tensors,
                                            .chart = *chart};
    RELEASED_BY(compare_free) struct comparison comparison = {.count = 0};
    RETURN_IF_NOT_OK(compare_make(&comparison, &request));
    RETURN_IF_NOT_OK(check_inputs());
    if (r->out)
        return compare_draw(&comparison, r->out);
    if (r->json)
        return compare_print_json(&comparison);
    compare_print(&comparison);
    return EXIT_OK;
}

static int show(const struct show_options *r, char **specs, size_t count, struct threads *threads)
{
    RELEASED_BY(tensor_files_close) struct tensor_files files = {0};
    char title[512] = "";
    const size_t others = r->importance_count;
    OWNED qobs_tensor *tensors = calloc(count + others, sizeof *tensors);
    OWNED_CONFIG qobs_config *config = NULL;
    if (!tensors)
        return print_error(EXIT_SYSTEM, "no memory");
    if (r->preset)
        RETURN_IF_NOT_OK(configure(r, &config));
    RETURN_IF_NOT_OK(open_tensors(&files, tensors, specs, count, r->qparam, title, sizeof title));
    RETURN_IF_NOT_OK(open_tensors(&files, tensors + count, (char *const *)r->importance, others, -1, NULL, 0));
    /* Now that all inputs are open. */
    RETURN_IF_NOT_OK(check_outputs(&(struct output_option){"--out", r->out, false}, 1));
    const struct chart chart = {.title = title, .bins = (size_t)r->bins, .logarithmic = r->logarithmic};
    const struct chart_source source = {.config = config,
                                        .runtime = &threads->runtime,
                                        .tensors = tensors,
                                        .names = specs,
                                        .count = count,
                                        .qparam = r->qparam,
                                        .importance = tensors + count,
                                        .importance_count = others};
    return (r->compare ? show_several : show_one)(r, &source, &chart);
}

static int run(void *options, int count, char **specs, struct threads *threads)
{
    const int code = check(options, count);
    return code == EXIT_OK ? show(options, specs, (size_t)count, threads) : code;
}

static const struct show_options defaults = {.qparam = -1, .bins = 240};

const struct command command_show = {
    .name = "show",
    .run = run,
    .size = sizeof defaults,
    .defaults = &defaults,
    .threaded = true,
    .summary = "the histogram of a tensor and the range an observer chooses in it",
    .usage = "--preset NAME [OPTION]... FILE[:TENSOR]...\n--compare A,B,C [OPTION]... FILE[:TENSOR]...",
    .description =
        "Draws one histogram of all tensors and the range the observer chooses after it has observed them in this "
        "order. Elements outside their range are clipped by quantization. Ranges of symmetric settings are symmetric. "
        "For scales that are powers of two, the range is that of the number format.\n"
        "With --compare, several observers choose: their ranges and grids stand beside the histogram, and a table has "
        "range, scale, clipped share and errors of each.",
    OPTION_ROWS(rows),
    .example = "qobs show --preset torch.HistogramObserver x.safetensors:x0 --log"};
