/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs show: shows the histogram of tensors and the range that an observer chooses for them. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations/recordings.h"
#include "chart.h"
#include "program.h"

static const char help[] =
    "usage: qobs show --preset NAME [OPTION]... FILE[:TENSOR]...\n"
    "\n"
    "Draws one histogram of all tensors and the range the observer chooses after it has observed them in this order.\n"
    "Elements outside their range are clipped by quantization. Ranges of symmetric settings are symmetric. For scales\n"
    "that are powers of two, the range is that of the number format.\n"
    "\n"
    "  --preset NAME            the observer; qobs info lists them with their settings\n"
    "  --set KEY=VALUE          a setting, under upstream's own name: num_bits=4, group_size=128, dtype=qint8\n"
    "  --base-name NAME         kind of the tensors: weight, input, output, q, k, v (default: input for\n"
    "                           llmc.static_minmax, llmc.minmax and llmc.mse, else weight)\n"
    "  --qparam INDEX           only the elements that share scale INDEX, counted from 0 (default: all elements)\n"
    "  --bins N                 number of bins, 1 to 65536 (default 240; in the terminal several share a line)\n"
    "  --log                    bar lengths follow the logarithm of the counts\n"
    "  --out FILE.svg|FILE.png  draw a picture instead\n"
    "  --json                   print edges, counts, range and clipped share as JSON instead\n"
    "  --isa NAME               use this instruction set (qobs info lists them)\n"
    "  --threads N              number of threads (default: one for each processor)\n"
    "  --help                   print this and exit\n";

struct show_options {
    const char *base, *out, *isa, *threads;
    char **assignments;
    int assigned;
    int64_t qparam;
    bool json, help;
    struct chart chart;
};

/* Parses the integer argument of an option. */
static int parse_number(const char *option, const char *text, long long min, long long max, long long *value)
{
    char *end;
    *value = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || *value < min || *value > max)
        return print_error(EXIT_USAGE, "%s: is '%s', allowed are %lld to %lld", option, text, min, max);
    return EXIT_OK;
}

static int parse(struct show_options *r, int argc, char **argv)
{
    enum { PRESET = 256, SET, BASE, QPARAM, BINS, LOG, JSON, ISA, THREADS };
    static const struct option options[] = {{"preset", required_argument, NULL, PRESET},
                                            {"set", required_argument, NULL, SET},
                                            {"base-name", required_argument, NULL, BASE},
                                            {"qparam", required_argument, NULL, QPARAM},
                                            {"bins", required_argument, NULL, BINS},
                                            {"log", no_argument, NULL, LOG},
                                            {"out", required_argument, NULL, 'o'},
                                            {"json", no_argument, NULL, JSON},
                                            {"isa", required_argument, NULL, ISA},
                                            {"threads", required_argument, NULL, THREADS},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    long long number;
    for (int c; (c = getopt_long(argc, argv, "ho:", options, NULL)) != -1;)
        switch (c) {
        case PRESET:
            r->chart.preset = optarg;
            break;
        case SET:
            r->assignments[r->assigned++] = optarg;
            break;
        case BASE:
            r->base = optarg;
            break;
        case QPARAM:
            if (parse_number("--qparam", optarg, 0, INT32_MAX, &number) != EXIT_OK)
                return EXIT_USAGE;
            r->qparam = number;
            break;
        case BINS:
            if (parse_number("--bins", optarg, 1, 65536, &number) != EXIT_OK)
                return EXIT_USAGE;
            r->chart.bins = (size_t)number;
            break;
        case LOG:
            r->chart.logarithmic = true;
            break;
        case 'o':
            r->out = optarg;
            break;
        case JSON:
            r->json = true;
            break;
        case ISA:
            r->isa = optarg;
            break;
        case THREADS:
            r->threads = optarg;
            break;
        case 'h':
            r->help = true;
            return EXIT_OK;
        default:
            return EXIT_USAGE;
        }
    if (!r->chart.preset)
        return print_error(EXIT_USAGE, "show: --preset is missing (see qobs show --help)");
    if (optind == argc)
        return print_error(EXIT_USAGE, "show: no tensor given");
    if (r->out && r->json)
        return print_error(EXIT_USAGE, "show: --out and --json exclude each other");
    return r->out ? chart_check_picture(r->out) : EXIT_OK;
}

static int configure(const struct show_options *r, qobs_config **config)
{
    qobs_error error;
    if (r->isa && qobs_isa_select(r->isa, &error) != QOBS_OK)
        return print_status_error(&error, "--isa");
    if (qobs_config_create(config, r->chart.preset, NULL, &error) != QOBS_OK)
        return print_status_error(&error, "--preset");
    for (int i = 0; i < r->assigned; i++)
        if (set_option(*config, r->assignments[i]) != EXIT_OK)
            return EXIT_USAGE;
    if (r->base && qobs_config_set(*config, "base_name", r->base, &error) != QOBS_OK)
        return print_status_error(&error, "--base-name");
    return EXIT_OK;
}

/* Makes the title: name, dtype and shape of the first tensor, shortened. */
static void make_title(char *title, size_t size, const struct tensor_ref *ref, int count, int64_t qparam)
{
    struct shape_words words;
    struct fail clean;
    char more[64] = "", part[64] = "";
    if (count > 1)
        snprintf(more, sizeof more, " and %d more", count - 1);
    if (qparam >= 0)
        snprintf(part, sizeof part, ", qparam %lld", (long long)qparam);
    fail(&clean, "%.90s%s %s %s%s%s", ref->name, strlen(ref->name) > 90 ? "..." : "", ref->dtype,
         shape_describe(ref->ndim, ref->shape, &words), more, part);
    snprintf(title, size, "%s", clean.message);
}

static int show(struct show_options *r, char **specs, int count, struct threads *threads)
{
    struct tensor_files files = {0};
    qobs_config *config = NULL;
    qobs_tensor *tensors = calloc((size_t)count, sizeof *tensors);
    char title[512];
    struct fail f;
    int code = tensors ? configure(r, &config) : print_error(EXIT_SYSTEM, "no memory");
    for (int i = 0; code == EXIT_OK && i < count; i++) {
        const struct tensor_ref *ref;
        if (tensors_spec(&files, specs[i], &ref, &f) || tensor_of_ref(ref, &tensors[i], &f))
            code = print_error(EXIT_USAGE, "%s", f.message);
        else if (i == 0)
            make_title(title, sizeof title, ref, count, r->qparam);
    }
    if (code == EXIT_OK) {
        r->chart.title = title;
        code = chart_make(&r->chart,
                          &(struct chart_source){config, &threads->runtime, tensors, specs, (size_t)count, r->qparam});
    }
    if (code == EXIT_OK)
        code = check_inputs();
    if (code == EXIT_OK && r->out)
        code = chart_draw(&r->chart, r->out);
    else if (code == EXIT_OK && r->json)
        code = chart_print_json(&r->chart);
    else if (code == EXIT_OK)
        chart_print(&r->chart);
    chart_free(&r->chart);
    qobs_config_destroy(config);
    tensor_files_close(&files);
    free(tensors);
    return code;
}

int command_show(int argc, char **argv)
{
    struct show_options r = {.qparam = -1, .chart = {.bins = 240}, .assignments = calloc((size_t)argc, sizeof(char *))};
    struct threads threads = {0};
    if (!r.assignments)
        return print_error(EXIT_SYSTEM, "no memory");
    int code = parse(&r, argc, argv);
    if (code == EXIT_OK && r.help)
        fputs(help, stdout);
    else if (code == EXIT_OK)
        code = threads_start(&threads, r.threads);
    if (code == EXIT_OK && !r.help)
        code = show(&r, argv + optind, argc - optind, &threads);
    threads_stop(&threads);
    free(r.assignments);
    return code;
}
