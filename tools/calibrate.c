/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs calibrate: its options, its files, and the order of things. */
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
    "Observes the weights of a checkpoint and writes <module>.weight_scale (and .weight_zero_point, .weight_global_scale) for\n"
    "each; from recorded activations also <module>.input_scale (.input_zero_point, .input_global_scale) and\n"
    "<attention>.k_scale and .v_scale. MODEL is .safetensors, *.safetensors.index.json or a directory with one of them.\n"
    "\n"
    "  --scheme NAME        what to quantize to; the list is below\n"
    "  --activations FILE   recorded activations, in any of the forms of MODEL; may be repeated: batches in that order.\n"
    "                       Tensors: <module>.input, <module>.output, <attention>.k_states, .v_states, .q_states. Where a\n"
    "                       module's input is not there, that of a module it is fused with (q_proj, k_proj, v_proj; gate_proj,\n"
    "                       up_proj) is taken. k and v become e4m3 with a scale a tensor where they are recorded\n"
    "  --importance FILE    recorded activations that weigh the columns of weights, for presets that do (llmc.imatrix_mse);\n"
    "                       <module>.input is found in the same way. May be repeated\n"
    "  --preset [BASE=]NAME the observer (qobs info lists them) for the weights (default llmc.memoryless_minmax) or for one\n"
    "                       of the bases input, output, q, k, v, kv (default llmc.static_minmax); BASE=none: leave it out\n"
    "  --set [BASE.]KEY=VALUE  a setting of that observer, over the scheme's: group_size=64, kv.strategy=attn_head,\n"
    "                       input.averaging_constant=0.1. Outputs and q are calibrated when an option speaks of them\n"
    "  --targets REGEX      modules to calibrate, matched from the start of the name; may be repeated\n"
    "                       (default: 2-D weights that are not embeddings, norms or lm_head)\n"
    "  --ignore REGEX       modules to leave out; may be repeated\n"
    "  -o, --out FILE       the output; it appears when it is complete\n"
    "  --json REPORT        write a report there (- for standard output)\n"
    "  --quiet              print no table\n"
    "  --isa NAME           use this instruction set (qobs info lists them)\n"
    "  --threads N          default: one for each processor\n"
    "  --help               print this and exit\n"
    "\n"
    "schemes:\n";

/* ---- Command -------------------------------------------------------------------------------------------------------------- */

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
    return complain(EXIT_WRONG, "--scheme: %s%s%s; known are %s", name ? "'" : "", name ? name : "is missing",
                    name ? "' is unknown" : "", known);
}

/* What is written must not replace what is read. */
static int check_no_input(const char *option, const char *path, const struct tensor_set *set, const char *whose)
{
    struct stat output, input;
    if (stat(path, &output) != 0)
        return EXIT_OK;
    const char *file = "";
    for (size_t i = 0; i < tensors_count(set); i++) {
        if (strcmp(tensors_at(set, i)->file, file) == 0)
            continue;
        file = tensors_at(set, i)->file;
        if (stat(file, &input) == 0 && input.st_dev == output.st_dev && input.st_ino == output.st_ino)
            return complain(EXIT_WRONG, "%s: %s is part of the %s", option, path, whose);
    }
    return EXIT_OK;
}

static int check_no_inputs(const char *option, const char *path, const struct tensor_set *model, const struct calibration *c)
{
    const struct recordings *const all[] = {&c->activations.recordings, &c->importance};
    int code = check_no_input(option, path, model, "model");
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; code == EXIT_OK && i < all[k]->count; i++)
            code = check_no_input(option, path, all[k]->items[i].set, "activations");
    return code;
}

/* ---- Report --------------------------------------------------------------------------------------------------------------- */

/* Opened before the work begins, so that what cannot be written is known then. */
struct report {
    const char *path; /* NULL: none; "-": standard output */
    FILE *device;     /* a pipe or a terminal, which cannot be renamed onto */
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
        return r->device ? EXIT_OK : complain(EXIT_TROUBLE, "--json: %s: cannot write: %s", path, strerror(errno));
    }
    if (check_output(path) != EXIT_OK)
        return EXIT_WRONG;
    return output_open(&r->output, path, &f) == 0 ? EXIT_OK : complain(EXIT_TROUBLE, "--json: %s", f.message);
}

static int fill_report(struct report *r, const char *text)
{
    if (r->output.path && output_write(&r->output, text, strlen(text), 0) != 0)
        return complain(EXIT_TROUBLE, "--json: %s: cannot write: %s", r->path, strerror(errno));
    if (r->device && (fputs(text, r->device) < 0 || fflush(r->device) != 0))
        return complain(EXIT_TROUBLE, "--json: %s: cannot write: %s", r->path, strerror(errno));
    return EXIT_OK;
}

static int show_report(struct report *r, const char *text)
{
    struct fail f;
    if (r->path && strcmp(r->path, "-") == 0)
        fputs(text, stdout);
    if (r->output.path && output_commit(&r->output, &f) != 0)
        return complain(EXIT_TROUBLE, "--json: %s", f.message);
    return EXIT_OK;
}

static void close_report(struct report *r)
{
    if (r->device)
        fclose(r->device);
    output_abort(&r->output);
}

/* ---- Options -------------------------------------------------------------------------------------------------------------- */

struct arguments {
    struct calibration c;
    const char *scheme, *isa, *threads;
    struct selection selection;
    bool quiet, help;
};

static int parse(struct arguments *a, int argc, char **argv)
{
    enum { SCHEME = 256, ACTIVATIONS, IMPORTANCE, PRESET, SET, TARGETS, IGNORE, JSON, QUIET, ISA, THREADS };
    static const struct option options[] = {{"scheme", required_argument, NULL, SCHEME},
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
    struct fail f;
    for (int c; (c = getopt_long(argc, argv, "ho:", options, NULL)) != -1;)
        switch (c) {
        case SCHEME:
            a->scheme = optarg;
            break;
        case ACTIVATIONS:
            if (recordings_add(&a->c.activations.recordings, optarg, &f) != 0)
                return complain(EXIT_WRONG, "--activations: %s", f.message);
            break;
        case IMPORTANCE:
            if (recordings_add(&a->c.importance, optarg, &f) != 0)
                return complain(EXIT_WRONG, "--importance: %s", f.message);
            break;
        case PRESET:
            if (bases_preset(&a->c.bases, optarg) != EXIT_OK)
                return EXIT_WRONG;
            break;
        case SET:
            if (bases_set(&a->c.bases, optarg) != EXIT_OK)
                return EXIT_WRONG;
            break;
        case TARGETS:
            if (selection_add_target(&a->selection, optarg, &f) != 0)
                return complain(EXIT_WRONG, "%s", f.message);
            break;
        case IGNORE:
            if (selection_add_ignore(&a->selection, optarg, &f) != 0)
                return complain(EXIT_WRONG, "%s", f.message);
            break;
        case 'o':
            a->c.out = optarg;
            break;
        case JSON:
            a->c.report = optarg;
            break;
        case QUIET:
            a->quiet = true;
            break;
        case ISA:
            a->isa = optarg;
            break;
        case THREADS:
            a->threads = optarg;
            break;
        case 'h':
            a->help = true;
            return EXIT_OK;
        default:
            return EXIT_WRONG;
        }
    if (optind + 1 != argc)
        return complain(EXIT_WRONG, "calibrate: expected one model, got %d (see qobs calibrate --help)", argc - optind);
    a->c.model = argv[optind];
    if (!a->c.out)
        return complain(EXIT_WRONG, "calibrate: -o OUT.safetensors is missing");
    if (check_output(a->c.out) != EXIT_OK)
        return EXIT_WRONG;
    a->c.scheme = a->scheme ? scheme_find(a->scheme) : NULL;
    return a->c.scheme ? EXIT_OK : unknown_scheme(a->scheme);
}

/* What was asked of activations needs some. */
static int check_asked(const struct calibration *c)
{
    for (enum base b = BASE_INPUT; c->activations.recordings.count == 0 && b < BASES; b++)
        if (c->bases.of[b].asked && c->bases.of[b].config)
            return complain(EXIT_WRONG, "--preset or --set for %s, but there are no --activations", base_names[b]);
    if (c->importance.count > 0 && !c->bases.of[BASE_WEIGHT].weighs)
        return complain(EXIT_WRONG, "--importance: %s does not weigh columns", c->bases.of[BASE_WEIGHT].preset);
    if (c->report && strcmp(c->report, c->out) == 0)
        return complain(EXIT_WRONG, "--json: %s is the output, too", c->report);
    return EXIT_OK;
}

/* Everything up to the moment at which the files appear. *text is the report. */
static int prepare(struct arguments *a, struct tensor_set *model, struct report *report, char **text, struct threads *threads)
{
    struct calibration *c = &a->c;
    struct fail f;
    int code = bases_make(&c->bases, c->scheme);
    if (code == EXIT_OK)
        code = check_asked(c);
    if (code == EXIT_OK && tensors_open(model, c->model, &f) != 0)
        code = complain(EXIT_WRONG, "%s", f.message);
    if (code == EXIT_OK)
        code = check_no_inputs("--out", c->out, model, c);
    if (code == EXIT_OK && c->report)
        code = check_no_inputs("--json", c->report, model, c);
    if (code == EXIT_OK)
        code = layers_choose(&c->layers, model, &a->selection, &c->bases.of[BASE_WEIGHT]);
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
        code = *text ? fill_report(report, *text) : complain(EXIT_TROUBLE, "no memory for the report");
    }
    return code;
}

static int calibrate(struct arguments *a, struct threads *threads)
{
    struct calibration *c = &a->c;
    struct tensor_set model = {0};
    struct report report = {0};
    char *text = NULL;
    qobs_error error;
    struct fail f;
    if (a->isa && qobs_isa_limit(a->isa, &error) != QOBS_OK)
        return complain_status(&error, "--isa");
    int code = prepare(a, &model, &report, &text, threads);
    if (code == EXIT_OK && st_writer_finish(&c->writer, &f) != 0)
        code = complain(EXIT_TROUBLE, "%s", f.message);
    if (code == EXIT_OK) {
        if (!a->quiet)
            calibration_print(c);
        calibration_warn(c);
        code = show_report(&report, text);
    }
    close_report(&report);
    st_writer_abort(&c->writer);
    free(text);
    tensors_close(&model);
    return code;
}

int command_calibrate(int argc, char **argv)
{
    struct arguments a = {0};
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
    recordings_free(&a.c.importance);
    layers_free(&a.c.layers);
    bases_free(&a.c.bases);
    selection_free(&a.selection);
    return code;
}
