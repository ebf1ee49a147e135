/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs calibrate: parses the options, shows progress and prints the report. The work is in checkpoint/. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate_table.h"
#include "commands.h"
#include "outputs.h"
#include "program.h"
#include "progress.h"
#include "qobs/checkpoint.h"
#include "report_file.h"
#include "schemes.h"
#include "suggest.h"

struct calibrate_options {
    qobs_checkpoint_calibrate_args args;
    struct option_list targets, ignore, presets, settings, activations, states, importance;
    const char *report, *isa, *threads;
    bool quiet, table;
    struct progress progress;
    uint64_t shown; /* bytes that the progress bar shows */
    bool started;
    int code; /* of the checks that follow the opening of inputs */
};

static int set_fill(void *options, const char *name)
{
    return fill_experts_option(name, &((struct calibrate_options *)options)->args.fill_experts);
}

#define AT(member) offsetof(struct calibrate_options, member)
static const struct option_row rows[] = {
    {.name = "scheme",
     .argument = "NAME",
     .kind = OPTION_TEXT,
     .offset = AT(args.scheme),
     .help = "quantization scheme, such as W4A16",
     .more = "from the list below, in any case"},
    {.name = "config",
     .argument = "FILE",
     .kind = OPTION_TEXT,
     .offset = AT(args.config),
     .help = "a whole quantization_config in place of a scheme",
     .more = "in JSON"},
    {.name = "recipe",
     .argument = "FILE",
     .kind = OPTION_TEXT,
     .offset = AT(args.recipe),
     .help = "a recipe of llm-compressor in place of a scheme",
     .more = "in YAML or JSON"},
    {.name = "activations",
     .argument = "FILE",
     .kind = OPTION_LIST,
     .offset = AT(activations),
     .help = "recorded activations",
     .more = "in any form of MODEL, or a directory of batches that python -m qobs.record has written; may be repeated, "
             "batches in that order. Tensors: <module>.input, <module>.output, "
             "<attention>.k_states, .v_states, .q_states. If a module's input is missing, that of a fused module is "
             "used (q_proj, k_proj, v_proj; gate_proj, up_proj). Recorded k and v get e4m3 scales, one for each "
             "tensor"},
    {.name = "states",
     .argument = "DIR",
     .kind = OPTION_LIST,
     .offset = AT(states),
     .help = "saved observers of activations",
     .more = "in place of recordings; several directories are merged"},
    {.name = "fill-experts",
     .argument = "NAME",
     .kind = OPTION_CALL,
     .call = set_fill,
     .help = "scales of experts that no token reached",
     .more = "refuse (default): they are left out; max, median: the largest or median scale of their layer's others"},
    {.name = "importance",
     .argument = "FILE",
     .kind = OPTION_LIST,
     .offset = AT(importance),
     .help = "importance of the columns of weights",
     .more = "for presets that support it (llmc.imatrix_mse, qobs.imatrix_optimal, qobs.local_hessian): an imatrix "
             "file of llama.cpp (GGUF, .dat, .imatrix; not for qobs.local_hessian), or recorded activations, where "
             "<module>.input is found in the same way. May be repeated"},
    {.name = "preset",
     .argument = "[BASE=]NAME",
     .kind = OPTION_LIST,
     .offset = AT(presets),
     .help = "the observer (qobs info lists them)",
     .more = "for the weights (default llmc.memoryless_minmax) or for one of the bases input, output, q, k, v, kv "
             "(default llmc.static_minmax); BASE=none: no observer"},
    {.name = "set",
     .argument = "[BASE.]KEY=VALUE",
     .kind = OPTION_LIST,
     .offset = AT(settings),
     .help = "a setting of that observer",
     .more = "overrides the scheme: group_size=64, kv.strategy=attn_head, input.averaging_constant=0.1. Outputs and q "
             "are calibrated if an option names them"},
    {.name = "targets",
     .argument = "NAME",
     .kind = OPTION_LIST,
     .offset = AT(targets),
     .help = "modules to calibrate",
     .more = "a name, or re: and a pattern that matches from its start, so re:.*q_proj finds every q_proj; may be "
             "repeated (default: linear layers; no embeddings, norms, routers or lm_head)"},
    {.name = "ignore",
     .argument = "NAME",
     .kind = OPTION_LIST,
     .offset = AT(ignore),
     .help = "modules to leave out",
     .more = "in the same form; may be repeated"},
    {.name = "out",
     .letter = 'o',
     .argument = "FILE",
     .kind = OPTION_TEXT,
     .offset = AT(args.out),
     .help = "the output",
     .more = "it appears when it is complete"},
    REPORT_ROW(struct calibrate_options, report),
    TABLE_ROW(struct calibrate_options),
    {.name = "quiet", .kind = OPTION_FLAG, .offset = AT(quiet), .help = "print no table"},
    ISA_ROW(struct calibrate_options),
    THREADS_ROW(struct calibrate_options),
};

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

/* Returns the name nearest to the value of the scheme, of a preset or of a setting that the message calls unknown. */
static bool print_suggestion(const struct calibrate_options *o, const qobs_error *error)
{
    const char *near = o->args.scheme && strncmp(error->message, "scheme:", 7) == 0
                           ? suggest(o->args.scheme, scheme_name, NULL)
                           : NULL;
    if (near) {
        print_error(EXIT_USAGE, "--scheme: '%s' is unknown; did you mean '%s'? (qobs calibrate --help lists all)",
                    o->args.scheme, near);
        return true;
    }
    for (size_t i = 0; i < o->presets.count && strncmp(error->message, "preset", 6) == 0; i++) {
        const char *equals = strchr(o->presets.items[i], '='), *name = equals ? equals + 1 : o->presets.items[i];
        char option[64];
        if (!strstr(error->message, name) || is_preset(name))
            continue;
        snprintf(option, sizeof option, "--%.*s", (int)strcspn(error->message, ":"), error->message);
        print_preset_error(error, option, name);
        return true;
    }
    qobs_config *config;
    const char *preset = "llmc.memoryless_minmax";
    for (size_t i = 0; i < o->presets.count; i++)
        preset = strchr(o->presets.items[i], '=') ? preset : o->presets.items[i];
    if (qobs_config_create(&config, preset, NULL, NULL) != QOBS_OK)
        return false;
    for (size_t i = 0; !near && i < o->settings.count; i++) {
        char key[64], unknown[96];
        const char *text = o->settings.items[i], *rest = text + strcspn(text, ".=");
        rest = *rest == '.' ? rest + 1 : text;
        snprintf(key, sizeof key, "%.*s", (int)strcspn(rest, "="), rest);
        snprintf(unknown, sizeof unknown, "'%s' is no setting", key);
        near = strstr(error->message, unknown) ? suggest(key, suggest_key, config) : NULL;
        if (near)
            print_error(EXIT_USAGE, "--set: '%s' is no setting of %s; did you mean '%s'? (qobs info %s explains all)",
                        key, preset, near, preset);
    }
    qobs_config_destroy(config);
    return near != NULL;
}

/* Messages begin with the member of the arguments, which is the name of the option but for settings. */
static int print_calibrate_error(const struct calibrate_options *o, const qobs_error *error)
{
    static const char *const members[] = {"scheme", "config", "recipe",      "targets",   "ignore",
                                          "preset", "states", "activations", "importance"};
    const char *message = error->message;
    const int code = error->status == QOBS_ERROR_SYSTEM || error->status == QOBS_ERROR_OUT_OF_MEMORY ||
                             error->status == QOBS_ERROR_CANCELLED
                         ? EXIT_SYSTEM
                         : EXIT_USAGE;
    if (print_suggestion(o, error))
        return code;
    if (strncmp(message, "setting:", 8) == 0)
        return print_error(code, "--set%s", message + 7);
    if (o->settings.count > 0 && strstr(message, "' is no setting"))
        return print_error(code, "--set: %s", message);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const size_t length = strlen(members[i]);
        if (strncmp(message, members[i], length) == 0 && (message[length] == ':' || message[length] == ' '))
            return print_error(code, "--%s", message);
    }
    return print_error(code, "%s", message);
}

/* ---- Run --------------------------------------------------------------------------------------------------------- */

static void give_lists(struct calibrate_options *o)
{
    qobs_checkpoint_calibrate_args *a = &o->args;
    a->struct_size = sizeof *a;
    a->targets = o->targets.items;
    a->target_count = o->targets.count;
    a->ignore = o->ignore.items;
    a->ignore_count = o->ignore.count;
    a->presets = o->presets.items;
    a->preset_count = o->presets.count;
    a->settings = o->settings.items;
    a->setting_count = o->settings.count;
    a->activations = o->activations.items;
    a->activation_count = o->activations.count;
    a->states = o->states.items;
    a->state_count = o->states.count;
    a->importance = o->importance.items;
    a->importance_count = o->importance.count;
}

/* Checks the outputs, also against the inputs that have been opened. */
static int check_files(const struct calibrate_options *o)
{
    const struct output_option outputs[] = {{"--out", o->args.out, false}, {"--json", o->report, true}};
    return check_outputs(outputs, sizeof outputs / sizeof *outputs);
}

static int parse(struct calibrate_options *o, int argc, char **argv, bool *done)
{
    const int code = options_parse(&command_calibrate, o, argc, argv, done);
    if (code != EXIT_OK || *done)
        return code;
    if (optind + 1 != argc)
        return print_error(EXIT_USAGE, "calibrate: expected one model, got %d (see qobs calibrate -h)", argc - optind);
    o->args.model = argv[optind];
    if (!o->args.out)
        return print_error(EXIT_USAGE, "calibrate: -o OUT.safetensors is missing");
    if (!o->args.scheme && !o->args.config && !o->args.recipe)
        return print_missing_scheme();
    give_lists(o);
    return check_files(o);
}

static int show_progress(void *context, const qobs_progress *progress)
{
    struct calibrate_options *o = context;
    if (!o->started) { /* all inputs are open now */
        o->started = true;
        o->code = check_files(o);
        progress_start(&o->progress, progress->bytes_total);
    }
    progress_add(&o->progress, progress->bytes_done - o->shown);
    o->shown = progress->bytes_done;
    return o->code != EXIT_OK;
}

/* Writes and prints the report of a calibration that has succeeded. */
static int finish(const struct calibrate_options *o, struct report_file *file, const char *text)
{
    json_object *report = NULL;
    struct fail f;
    int code = text && json_parse(&report, "the report", "report", text, strlen(text), &f) == 0
                   ? EXIT_OK
                   : print_error(EXIT_SYSTEM, "no memory for the report");
    if (code == EXIT_OK && o->report)
        code = report_write(file, text);
    if (code == EXIT_OK && !o->quiet && !(o->report && strcmp(o->report, "-") == 0))
        code = calibrate_print(report, o->table);
    if (code == EXIT_OK)
        code = report_publish(file, text);
    if (code == EXIT_OK && !calibrate_warn(report))
        code = EXIT_INCOMPLETE;
    json_object_put(report);
    return code;
}

static int calibrate(struct calibrate_options *o, struct threads *threads)
{
    struct report_file report = {0};
    char *text = NULL;
    qobs_error error;
    if (o->isa && qobs_isa_select(o->isa, &error) != QOBS_OK)
        return print_status_error(&error, "--isa");
    int code = check_model(o->args.model);
    if (code == EXIT_OK)
        code = report_open(&report, o->report);
    if (code != EXIT_OK)
        return code;
    o->args.runtime = &threads->runtime;
    o->args.progress = show_progress;
    o->args.context = o;
    o->args.report = &text;
    const int status = qobs_checkpoint_calibrate(&o->args, &error);
    progress_stop(&o->progress);
    code = status == QOBS_OK    ? finish(o, &report, text)
           : o->code != EXIT_OK ? o->code
                                : print_calibrate_error(o, &error);
    report_close(&report);
    free(text);
    return code;
}

static int run(int argc, char **argv)
{
    struct calibrate_options o = {0};
    struct threads threads = {0};
    bool done;
    int code = parse(&o, argc, argv, &done);
    if (code == EXIT_OK && !done) {
        code = threads_start(&threads, o.threads);
        if (code == EXIT_OK)
            code = calibrate(&o, &threads);
        threads_stop(&threads);
    }
    struct option_list *const lists[] = {&o.targets,     &o.ignore, &o.presets,   &o.settings,
                                         &o.activations, &o.states, &o.importance};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]->items);
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
