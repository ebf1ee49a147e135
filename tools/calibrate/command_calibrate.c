/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs calibrate: parses the options, opens the files and runs the steps of a calibration in order. */
#include "calibrate.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands.h"
#include "outputs.h"
#include "report_file.h"
#include "select.h"
#include "suggest.h"

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static const char *scheme_name(const void *context, size_t index)
{
    (void)context;
    const struct scheme *scheme = index <= INT_MAX ? scheme_at((int)index) : NULL;
    return scheme ? scheme->name : NULL;
}

static int unknown_scheme(const char *name)
{
    const char *near = name ? suggest(name, scheme_name, NULL) : NULL;
    if (near)
        return print_error(
            EXIT_USAGE, "--scheme: '%s' is unknown; did you mean '%s'? (qobs calibrate --help lists all)", name, near);
    char known[256] = "";
    for (int i = 0; scheme_at(i); i++) {
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, scheme_at(i)->name, sizeof known - strlen(known) - 1);
    }
    return print_error(EXIT_USAGE, "--scheme: %s%s%s; known are %s", name ? "'" : "", name ? name : "is missing",
                       name ? "' is unknown" : "", known);
}

/* Checks the outputs, also against the inputs that are open. */
static int check_files(const struct calibration *c)
{
    const struct output_option outputs[] = {{"--out", c->out, false}, {"--json", c->report, true}};
    return check_outputs(outputs, 2);
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

struct calibrate_options {
    struct calibration c;
    const char *scheme, *isa, *threads;
    struct selection selection;
    bool quiet, table;
};

/* Turns the result of a function that reports with struct fail into an exit code. */
static int option_result(int result, const char *prefix, const struct fail *f)
{
    return result == 0 ? EXIT_OK : print_failure(f, prefix);
}

static int add_activations(void *options, const char *argument)
{
    struct calibrate_options *o = options;
    struct fail f;
    return option_result(recordings_add(&o->c.activations.recordings, argument, &f), "--activations: ", &f);
}

static int add_importance(void *options, const char *argument)
{
    struct calibrate_options *o = options;
    struct fail f;
    return option_result(importance_add(&o->c.importance, argument, &f), "--importance: ", &f);
}

static int add_preset(void *options, const char *argument)
{
    return bases_preset(&((struct calibrate_options *)options)->c.bases, argument);
}

static int add_setting(void *options, const char *argument)
{
    return bases_set(&((struct calibrate_options *)options)->c.bases, argument);
}

static int add_target(void *options, const char *argument)
{
    struct calibrate_options *o = options;
    struct fail f;
    return option_result(selection_add_target(&o->selection, argument, &f), "", &f);
}

static int add_ignored(void *options, const char *argument)
{
    struct calibrate_options *o = options;
    struct fail f;
    return option_result(selection_add_ignore(&o->selection, argument, &f), "", &f);
}

#define AT(member) offsetof(struct calibrate_options, member)
static const struct option_row rows[] = {
    {.name = "scheme",
     .argument = "NAME",
     .kind = OPTION_TEXT,
     .offset = AT(scheme),
     .help = "quantization scheme, such as W4A16",
     .more = "from the list below, in any case"},
    {.name = "activations",
     .argument = "FILE",
     .kind = OPTION_CALL,
     .call = add_activations,
     .help = "recorded activations",
     .more = "in any form of MODEL, or a directory of batches that python -m qobs.record has written; may be repeated, "
             "batches in that order. Tensors: <module>.input, <module>.output, "
             "<attention>.k_states, .v_states, .q_states. If a module's input is missing, that of a fused module is "
             "used (q_proj, k_proj, v_proj; gate_proj, up_proj). Recorded k and v get e4m3 scales, one for each "
             "tensor"},
    {.name = "importance",
     .argument = "FILE",
     .kind = OPTION_CALL,
     .call = add_importance,
     .help = "importance of the columns of weights",
     .more = "for presets that support it (llmc.imatrix_mse, qobs.imatrix_optimal, qobs.local_hessian): an imatrix "
             "file of llama.cpp (GGUF, .dat, .imatrix; not for qobs.local_hessian), or recorded activations, where "
             "<module>.input is found in the same way. May be repeated"},
    {.name = "preset",
     .argument = "[BASE=]NAME",
     .kind = OPTION_CALL,
     .call = add_preset,
     .help = "the observer (qobs info lists them)",
     .more = "for the weights (default llmc.memoryless_minmax) or for one of the bases input, output, q, k, v, kv "
             "(default llmc.static_minmax); BASE=none: no observer"},
    {.name = "set",
     .argument = "[BASE.]KEY=VALUE",
     .kind = OPTION_CALL,
     .call = add_setting,
     .help = "a setting of that observer",
     .more = "overrides the scheme: group_size=64, kv.strategy=attn_head, input.averaging_constant=0.1. Outputs and q "
             "are calibrated if an option names them"},
    {.name = "targets",
     .argument = "REGEX",
     .kind = OPTION_CALL,
     .call = add_target,
     .help = "modules to calibrate",
     .more = "matched from the start of the name, so .*q_proj finds every q_proj; may be repeated (default: "
             "Linear, the 2-D weights that are not embeddings, norms or lm_head)"},
    {.name = "ignore",
     .argument = "REGEX",
     .kind = OPTION_CALL,
     .call = add_ignored,
     .help = "modules to leave out",
     .more = "may be repeated"},
    {.name = "out",
     .letter = 'o',
     .argument = "FILE",
     .kind = OPTION_TEXT,
     .offset = AT(c.out),
     .help = "the output",
     .more = "it appears when it is complete"},
    REPORT_ROW(struct calibrate_options, c.report),
    TABLE_ROW(struct calibrate_options),
    {.name = "quiet", .kind = OPTION_FLAG, .offset = AT(quiet), .help = "print no table"},
    ISA_ROW(struct calibrate_options),
    THREADS_ROW(struct calibrate_options),
};

static void print_schemes(void)
{
    printf("schemes:\n");
    for (int i = 0; scheme_at(i); i++) {
        const int column = printf("  %-12s ", scheme_at(i)->name);
        print_wrapped(scheme_at(i)->summary, column, 15);
    }
}

static int parse(struct calibrate_options *o, int argc, char **argv, bool *done)
{
    const int code = options_parse(&command_calibrate, o, argc, argv, done);
    if (code != EXIT_OK || *done)
        return code;
    if (optind + 1 != argc)
        return print_error(EXIT_USAGE, "calibrate: expected one model, got %d (see qobs calibrate -h)", argc - optind);
    o->c.model = argv[optind];
    if (!o->c.out)
        return print_error(EXIT_USAGE, "calibrate: -o OUT.safetensors is missing");
    if (check_files(&o->c) != EXIT_OK)
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
    return EXIT_OK;
}

/* Runs all steps before the output files appear. *text receives the report. */
static int prepare(struct calibrate_options *a, struct tensor_set *model, struct report_file *report, char **text,
                   struct threads *threads)
{
    struct calibration *c = &a->c;
    struct fail f;
    int code = check_model(c->model);
    if (code == EXIT_OK)
        code = bases_make(&c->bases, c->scheme);
    if (code == EXIT_OK)
        code = check_requested(c);
    if (code == EXIT_OK && tensors_open(model, c->model, &f) != 0)
        code = print_failure(&f, "");
    if (code == EXIT_OK)
        code = check_files(c);
    if (code == EXIT_OK)
        code = layers_choose(&c->layers, model, &a->selection, &c->bases.observers[BASE_WEIGHT]);
    if (code == EXIT_OK && c->activations.recordings.count > 0)
        code = activations_find(&c->activations, &c->bases, &c->layers, model, &a->selection);
    if (code == EXIT_OK)
        code = report_open(report, c->report);
    if (code == EXIT_OK)
        code = calibration_run(c, threads);
    if (code == EXIT_OK)
        code = check_inputs();
    if (code == EXIT_OK && report->path) {
        *text = calibration_report(c);
        code = *text ? report_write(report, *text) : print_error(EXIT_SYSTEM, "no memory for the report");
    }
    return code;
}

static int calibrate(struct calibrate_options *a, struct threads *threads)
{
    struct calibration *c = &a->c;
    struct tensor_set model = {0};
    struct report_file report = {0};
    char *text = NULL;
    qobs_error error;
    struct fail f;
    if (a->isa && qobs_isa_select(a->isa, &error) != QOBS_OK)
        return print_status_error(&error, "--isa");
    int code = prepare(a, &model, &report, &text, threads);
    if (code == EXIT_OK && st_writer_finish(&c->writer, &f) != 0)
        code = print_error(EXIT_SYSTEM, "%s", f.message);
    if (code == EXIT_OK) {
        if (!a->quiet && !(report.path && strcmp(report.path, "-") == 0))
            code = calibration_print(c, a->table);
        if (code == EXIT_OK)
            code = report_publish(&report, text);
        if (!calibration_warn(c) && code == EXIT_OK)
            code = EXIT_INCOMPLETE;
    }
    report_close(&report);
    st_writer_abort(&c->writer);
    free(text);
    tensors_close(&model);
    return code;
}

static int run(int argc, char **argv)
{
    struct calibrate_options a = {0};
    struct threads threads = {0};
    bool done;
    int code = parse(&a, argc, argv, &done);
    if (code == EXIT_OK && !done)
        code = threads_start(&threads, a.threads);
    if (code == EXIT_OK && !done)
        code = calibrate(&a, &threads);
    threads_stop(&threads);
    activations_free(&a.c.activations);
    importance_free(&a.c.importance);
    layers_free(&a.c.layers);
    bases_free(&a.c.bases);
    selection_free(&a.selection);
    return code;
}

const struct command command_calibrate = {
    .name = "calibrate",
    .run = run,
    .summary = "scales and zero points for the weights of a checkpoint",
    .usage = "MODEL --scheme NAME -o OUT.safetensors [OPTION]...",
    .description =
        "Observes the weights of a checkpoint and writes <module>.weight_scale for each (and .weight_zero_point, "
        ".weight_global_scale). From recorded activations it also writes <module>.input_scale (.input_zero_point, "
        ".input_global_scale) and <attention>.k_scale and .v_scale. MODEL is .safetensors, "
        "*.safetensors.index.json or a directory with one of them.\n"
        "If the scheme needs scales that nothing was recorded for, a warning names them and the exit status is 3.",
    .options = rows,
    .option_count = sizeof rows / sizeof *rows,
    .example = "qobs calibrate model.safetensors --scheme W4A16 -o scales.safetensors",
    .print_more = print_schemes};
