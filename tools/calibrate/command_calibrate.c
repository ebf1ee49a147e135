/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs calibrate: parses the options, opens the files and runs the steps of a calibration in order. */
#include "calibrate.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "select.h"

static const char help[] =
    "usage: qobs calibrate MODEL --scheme NAME -o OUT.safetensors [OPTION]...\n"
    "\n"
    "Observes the weights of a checkpoint and writes <module>.weight_scale for each (and .weight_zero_point,\n"
    ".weight_global_scale). From recorded activations it also writes <module>.input_scale (.input_zero_point,\n"
    ".input_global_scale) and <attention>.k_scale and .v_scale. MODEL is .safetensors, *.safetensors.index.json or a\n"
    "directory with one of them.\n"
    "\n"
    "  --scheme NAME        quantization scheme, from the list below\n"
    "  --activations FILE   recorded activations, in any form of MODEL; may be repeated, batches in that order.\n"
    "                       Tensors: <module>.input, <module>.output, <attention>.k_states, .v_states, .q_states. If\n"
    "                       a module's input is missing, that of a fused module is used (q_proj, k_proj, v_proj;\n"
    "                       gate_proj, up_proj). Recorded k and v get e4m3 scales, one for each tensor\n"
    "  --importance FILE    importance of the columns of weights, for presets that support it (llmc.imatrix_mse,\n"
    "                       qobs.imatrix_optimal, qobs.local_hessian): an imatrix file of llama.cpp (GGUF, .dat,\n"
    "                       .imatrix; not for qobs.local_hessian), or recorded activations, where <module>.input is\n"
    "                       found in the same way. May be repeated\n"
    "  --preset [BASE=]NAME the observer (qobs info lists them) for the weights (default llmc.memoryless_minmax) or\n"
    "                       for one of the bases input, output, q, k, v, kv (default llmc.static_minmax); BASE=none:\n"
    "                       no observer\n"
    "  --set [BASE.]KEY=VALUE  a setting of that observer, overrides the scheme: group_size=64,\n"
    "                       kv.strategy=attn_head, input.averaging_constant=0.1. Outputs and q are calibrated if\n"
    "                       an option names them\n"
    "  --targets REGEX      modules to calibrate, matched from the start of the name; may be repeated\n"
    "                       (default: 2-D weights that are not embeddings, norms or lm_head)\n"
    "  --ignore REGEX       modules to leave out; may be repeated\n"
    "  -o, --out FILE       the output; it appears when it is complete\n"
    "  --json REPORT        write a report there (- for standard output)\n"
    "  --quiet              print no table\n"
    "  --isa NAME           use this instruction set (qobs info lists them)\n"
    "  --threads N          number of threads (default: one for each processor)\n"
    "  --help               print this and exit\n"
    "\n"
    "schemes:\n";

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static void print_help(void)
{
    fputs(help, stdout);
    for (int i = 0; scheme_at(i); i++)
        printf("  %-12s %s\n", scheme_at(i)->name, scheme_at(i)->summary);
}

static int unknown_scheme(const char *name)
{
    char known[256] = "";
    for (int i = 0; scheme_at(i); i++) {
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, scheme_at(i)->name, sizeof known - strlen(known) - 1);
    }
    return print_error(EXIT_USAGE, "--scheme: %s%s%s; known are %s", name ? "'" : "", name ? name : "is missing",
                       name ? "' is unknown" : "", known);
}

/* Fails if the output path is one of the input files. `input_name` names the input in the message. */
static int check_not_input(const char *option, const char *path, const struct tensor_set *set, const char *input_name)
{
    struct stat output, input;
    if (stat(path, &output) != 0)
        return EXIT_OK;
    const char *file = "";
    for (size_t i = 0; i <= tensors_count(set); i++) { /* the last one is the index */
        const char *next = i < tensors_count(set) ? tensors_at(set, i)->file : set->path;
        if (strcmp(next, file) == 0)
            continue;
        file = next;
        if (stat(file, &input) == 0 && input.st_dev == output.st_dev && input.st_ino == output.st_ino)
            return print_error(EXIT_USAGE, "%s: %s is part of the %s", option, path, input_name);
    }
    return EXIT_OK;
}

static int check_not_any_input(const char *option, const char *path, const struct tensor_set *model,
                               const struct calibration *c)
{
    const struct recordings *const all[] = {&c->activations.recordings, &c->importance.recordings};
    int code = check_not_input(option, path, model, "model");
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; code == EXIT_OK && i < all[k]->count; i++)
            code = check_not_input(option, path, all[k]->items[i].set, "activations");
    return code;
}

/* True if two output paths name one file, which need not exist: the same name in the same directory, or links to one
 * file. */
static bool is_same_output(const char *a, const char *b)
{
    struct stat of_a, of_b;
    if (stat(a, &of_a) == 0 && stat(b, &of_b) == 0)
        return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
    const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
    if (strcmp(slash_a ? slash_a + 1 : a, slash_b ? slash_b + 1 : b) != 0)
        return false;
    char *directory_a = slash_a ? strndup(a, (size_t)(slash_a - a) + 1) : strdup(".");
    char *directory_b = slash_b ? strndup(b, (size_t)(slash_b - b) + 1) : strdup(".");
    const bool same = directory_a && directory_b && stat(directory_a, &of_a) == 0 && stat(directory_b, &of_b) == 0 &&
                      of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
    free(directory_a);
    free(directory_b);
    return same;
}

/* ---- Report ------------------------------------------------------------------------------------------------------ */

/* The report file. It is opened before the work begins, so that an unwritable path fails early. */
struct report {
    const char *path; /* NULL: none; "-": standard output */
    FILE *device;     /* a pipe or a terminal, which rename cannot replace; else NULL */
    struct output output;
};

static int open_report(struct report *r, const char *path)
{
    struct stat status;
    struct fail f;
    r->path = path;
    if (!path || strcmp(path, "-") == 0)
        return EXIT_OK;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
        r->device = fopen(path, "w");
        return r->device ? EXIT_OK : print_error(EXIT_SYSTEM, "--json: %s: cannot write: %s", path, strerror(errno));
    }
    if (check_output(path) != EXIT_OK)
        return EXIT_USAGE;
    return output_open(&r->output, path, &f) == 0 ? EXIT_OK : print_error(EXIT_SYSTEM, "--json: %s", f.message);
}

static int write_report(struct report *r, const char *text)
{
    if (r->output.path && output_write(&r->output, text, strlen(text), 0) != 0)
        return print_error(EXIT_SYSTEM, "--json: %s: cannot write: %s", r->path, strerror(errno));
    if (r->device && (fputs(text, r->device) < 0 || fflush(r->device) != 0))
        return print_error(EXIT_SYSTEM, "--json: %s: cannot write: %s", r->path, strerror(errno));
    return EXIT_OK;
}

static int publish_report(struct report *r, const char *text)
{
    struct fail f;
    if (r->path && strcmp(r->path, "-") == 0)
        fputs(text, stdout);
    if (r->output.path && output_commit(&r->output, &f) != 0)
        return print_error(EXIT_SYSTEM, "--json: %s", f.message);
    return EXIT_OK;
}

static void close_report(struct report *r)
{
    if (r->device)
        fclose(r->device);
    output_abort(&r->output);
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

struct calibrate_options {
    struct calibration c;
    const char *scheme, *isa, *threads;
    struct selection selection;
    bool quiet, help;
};

enum option_code { SCHEME = 256, ACTIVATIONS, IMPORTANCE, PRESET, SET, TARGETS, IGNORE, JSON, QUIET, ISA, THREADS };

static const struct option long_options[] = {{"scheme", required_argument, NULL, SCHEME},
                                             {"activations", required_argument, NULL, ACTIVATIONS},
                                             {"importance", required_argument, NULL, IMPORTANCE},
                                             {"preset", required_argument, NULL, PRESET},
                                             {"set", required_argument, NULL, SET},
                                             {"targets", required_argument, NULL, TARGETS},
                                             {"ignore", required_argument, NULL, IGNORE},
                                             {"out", required_argument, NULL, 'o'},
                                             {"json", required_argument, NULL, JSON},
                                             {"quiet", no_argument, NULL, QUIET},
                                             {"isa", required_argument, NULL, ISA},
                                             {"threads", required_argument, NULL, THREADS},
                                             {"help", no_argument, NULL, 'h'},
                                             {0}};

/* Prints the message of a failed function as an error of an option, unless `result` is 0. */
static int option_result(int result, const char *prefix, const struct fail *f)
{
    return result == 0 ? EXIT_OK : print_error(EXIT_USAGE, "%s%s", prefix, f->message);
}

/* Stores one option. getopt_long has already reported an unknown one. */
static int store_option(struct calibrate_options *o, int code)
{
    struct fail f;
    switch (code) {
    case SCHEME:
        o->scheme = optarg;
        return EXIT_OK;
    case ACTIVATIONS:
        return option_result(recordings_add(&o->c.activations.recordings, optarg, &f), "--activations: ", &f);
    case IMPORTANCE:
        return option_result(importance_add(&o->c.importance, optarg, &f), "--importance: ", &f);
    case PRESET:
        return bases_preset(&o->c.bases, optarg);
    case SET:
        return bases_set(&o->c.bases, optarg);
    case TARGETS:
        return option_result(selection_add_target(&o->selection, optarg, &f), "", &f);
    case IGNORE:
        return option_result(selection_add_ignore(&o->selection, optarg, &f), "", &f);
    case 'o':
        o->c.out = optarg;
        return EXIT_OK;
    case JSON:
        o->c.report = optarg;
        return EXIT_OK;
    case QUIET:
        o->quiet = true;
        return EXIT_OK;
    case ISA:
        o->isa = optarg;
        return EXIT_OK;
    case THREADS:
        o->threads = optarg;
        return EXIT_OK;
    case 'h':
        o->help = true;
        return EXIT_OK;
    default:
        return EXIT_USAGE;
    }
}

static int parse(struct calibrate_options *o, int argc, char **argv)
{
    for (int c; (c = getopt_long(argc, argv, "ho:", long_options, NULL)) != -1;) {
        if (store_option(o, c) != EXIT_OK)
            return EXIT_USAGE;
        if (o->help)
            return EXIT_OK;
    }
    if (optind + 1 != argc)
        return print_error(EXIT_USAGE, "calibrate: expected one model, got %d (see qobs calibrate --help)",
                           argc - optind);
    o->c.model = argv[optind];
    if (!o->c.out)
        return print_error(EXIT_USAGE, "calibrate: -o OUT.safetensors is missing");
    if (check_output(o->c.out) != EXIT_OK)
        return EXIT_USAGE;
    o->c.scheme = o->scheme ? scheme_find(o->scheme) : NULL;
    return o->c.scheme ? EXIT_OK : unknown_scheme(o->scheme);
}

/* Checks the options that depend on each other. */
static int check_requested(const struct calibration *c)
{
    for (enum base b = BASE_INPUT; c->activations.recordings.count == 0 && b < BASES; b++)
        if (c->bases.observers[b].requested && c->bases.observers[b].config)
            return print_error(EXIT_USAGE, "--preset or --set for %s, but there are no --activations", base_names[b]);
    if (c->importance.recordings.count + c->importance.file_count > 0 &&
        !c->bases.observers[BASE_WEIGHT].uses_importance)
        return print_error(EXIT_USAGE, "--importance: %s does not weigh columns",
                           c->bases.observers[BASE_WEIGHT].preset);
    if (c->report && is_same_output(c->report, c->out))
        return print_error(EXIT_USAGE, "--json: %s is also the output", c->report);
    return EXIT_OK;
}

/* Runs all steps before the output files appear. *text receives the report. */
static int prepare(struct calibrate_options *a, struct tensor_set *model, struct report *report, char **text,
                   struct threads *threads)
{
    struct calibration *c = &a->c;
    struct fail f;
    int code = bases_make(&c->bases, c->scheme);
    if (code == EXIT_OK)
        code = check_requested(c);
    if (code == EXIT_OK && tensors_open(model, c->model, &f) != 0)
        code = print_error(EXIT_USAGE, "%s", f.message);
    if (code == EXIT_OK)
        code = check_not_any_input("--out", c->out, model, c);
    if (code == EXIT_OK && c->report)
        code = check_not_any_input("--json", c->report, model, c);
    if (code == EXIT_OK)
        code = layers_choose(&c->layers, model, &a->selection, &c->bases.observers[BASE_WEIGHT]);
    if (code == EXIT_OK && c->activations.recordings.count > 0)
        code = activations_find(&c->activations, &c->bases, &c->layers, model, &a->selection);
    if (code == EXIT_OK)
        code = open_report(report, c->report);
    if (code == EXIT_OK)
        code = calibration_run(c, threads);
    if (code == EXIT_OK)
        code = check_inputs();
    if (code == EXIT_OK && report->path) {
        *text = calibration_report(c);
        code = *text ? write_report(report, *text) : print_error(EXIT_SYSTEM, "no memory for the report");
    }
    return code;
}

static int calibrate(struct calibrate_options *a, struct threads *threads)
{
    struct calibration *c = &a->c;
    struct tensor_set model = {0};
    struct report report = {0};
    char *text = NULL;
    qobs_error error;
    struct fail f;
    if (a->isa && qobs_isa_select(a->isa, &error) != QOBS_OK)
        return print_status_error(&error, "--isa");
    int code = prepare(a, &model, &report, &text, threads);
    if (code == EXIT_OK && st_writer_finish(&c->writer, &f) != 0)
        code = print_error(EXIT_SYSTEM, "%s", f.message);
    if (code == EXIT_OK) {
        if (!a->quiet)
            calibration_print(c);
        calibration_warn(c);
        code = publish_report(&report, text);
    }
    close_report(&report);
    st_writer_abort(&c->writer);
    free(text);
    tensors_close(&model);
    return code;
}

int command_calibrate(int argc, char **argv)
{
    struct calibrate_options a = {0};
    struct threads threads = {0};
    int code = parse(&a, argc, argv);
    if (code == EXIT_OK && a.help)
        print_help();
    else if (code == EXIT_OK)
        code = threads_start(&threads, a.threads);
    if (code == EXIT_OK && !a.help)
        code = calibrate(&a, &threads);
    threads_stop(&threads);
    activations_free(&a.c.activations);
    importance_free(&a.c.importance);
    layers_free(&a.c.layers);
    bases_free(&a.c.bases);
    selection_free(&a.selection);
    return code;
}
