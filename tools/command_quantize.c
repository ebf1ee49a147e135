/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs quantize: parses the options, shows progress and prints the summary. The work is in checkpoint/. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/output.h"
#include "program.h"
#include "progress.h"
#include "qobs/checkpoint.h"
#include "quantize_summary.h"
#include "schemes/quant_config.h"

static const char help[] =
    "usage: qobs quantize MODEL_DIR --scheme NAME -o OUT_DIR [OPTION]...\n"
    "\n"
    "Writes a quantized copy of a model in the format of compressed-tensors, which vLLM loads. OUT_DIR appears when "
    "it\n"
    "is complete.\n"
    "\n"
    "  --scheme NAME     quantization scheme, from the list below, in any case\n"
    "  --config FILE     a whole quantization_config (JSON) in place of a scheme\n"
    "  --recipe FILE     a recipe of llm-compressor (YAML or JSON) in place of a scheme\n"
    "  --targets NAME    modules to quantize: a name, or re: and a pattern that matches from its start; may be "
    "repeated\n"
    "                    (default: linear layers; no embeddings, norms, routers or lm_head)\n"
    "  --ignore NAME     modules to leave as they are; may be repeated\n"
    "  --preset NAME     observer of the weights (default llmc.memoryless_minmax; llmc.memoryless_mse searches)\n"
    "  --set KEY=VALUE   a member of the scheme's weights or a setting of the observer: group_size=64; may be "
    "repeated\n"
    "  --activations FILE  recorded activations for FP8, NVFP4 and the key/value cache: safetensors with tensors\n"
    "                    <module>.input, <attention>.k_states, <attention>.v_states; may be repeated, a batch each\n"
    "  --states DIR      saved observers of activations in place of recordings; several directories are merged\n"
    "  --compat NAME     vllm (default), or llm-compressor: byte for byte what model_free_ptq writes\n"
    "  -o, --out DIR     the output: a directory that is new or empty\n"
    "  --replace         if OUT_DIR holds files, replace it as a whole at the end\n"
    "  --json REPORT     write a report there (- for standard output, without the summary)\n"
    "  --table           list all layers, not the ten with the largest errors\n"
    "  --quiet           print no summary\n"
    "  --isa NAME        use this instruction set (qobs info lists them)\n"
    "  --threads N       number of threads (default: one for each processor)\n"
    "  --help            print this and exit\n"
    "\n"
    "schemes:\n";

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

/* The signal that asks to stop; 0: none. */
static volatile sig_atomic_t stop_signal;

static void request_stop(int signal_number) { stop_signal = signal_number; }

static const int stop_signals[] = {SIGHUP, SIGINT, SIGTERM};

/* Lets the run end in order, so that it removes its directory. Signals that were ignored stay ignored. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = request_stop}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof stop_signals / sizeof *stop_signals; i++)
        if (sigaction(stop_signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(stop_signals[i], &action, NULL);
}

/* Ends the program by the signal that was caught. */
static void end_by_signal(void)
{
    signal(stop_signal, SIG_DFL);
    raise(stop_signal);
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

struct option_list {
    const char **items;
    size_t count;
};

struct quantize_options {
    qobs_checkpoint_quantize_args args;
    struct option_list targets, ignore, settings, activations, states;
    const char *report, *isa, *threads;
    bool quiet, table, help;
    struct progress progress;
    uint64_t shown; /* bytes that the progress bar shows */
};

enum quantize_option {
    SCHEME = 256,
    CONFIG,
    RECIPE,
    TARGETS,
    IGNORE,
    PRESET,
    SET,
    ACTIVATIONS,
    STATES,
    COMPAT,
    REPLACE,
    JSON,
    TABLE,
    QUIET,
    ISA,
    THREADS
};

static const struct option long_options[] = {{"scheme", required_argument, NULL, SCHEME},
                                             {"config", required_argument, NULL, CONFIG},
                                             {"recipe", required_argument, NULL, RECIPE},
                                             {"targets", required_argument, NULL, TARGETS},
                                             {"ignore", required_argument, NULL, IGNORE},
                                             {"preset", required_argument, NULL, PRESET},
                                             {"set", required_argument, NULL, SET},
                                             {"activations", required_argument, NULL, ACTIVATIONS},
                                             {"states", required_argument, NULL, STATES},
                                             {"compat", required_argument, NULL, COMPAT},
                                             {"out", required_argument, NULL, 'o'},
                                             {"replace", no_argument, NULL, REPLACE},
                                             {"json", required_argument, NULL, JSON},
                                             {"table", no_argument, NULL, TABLE},
                                             {"quiet", no_argument, NULL, QUIET},
                                             {"isa", required_argument, NULL, ISA},
                                             {"threads", required_argument, NULL, THREADS},
                                             {"help", no_argument, NULL, 'h'},
                                             {0}};

static int add(struct option_list *list, const char *text)
{
    const char **grown = realloc(list->items, (list->count + 1) * sizeof *grown);
    if (!grown)
        return print_error(EXIT_SYSTEM, "no memory for the options");
    list->items = grown;
    grown[list->count++] = text;
    return EXIT_OK;
}

static int set_compat(qobs_checkpoint_quantize_args *args, const char *name)
{
    if (strcmp(name, "vllm") != 0 && strcmp(name, "llm-compressor") != 0)
        return print_error(EXIT_USAGE, "--compat: is '%s', allowed are vllm and llm-compressor", name);
    args->compat = *name == 'v' ? QOBS_COMPAT_VLLM : QOBS_COMPAT_LLM_COMPRESSOR;
    return EXIT_OK;
}

/* Stores one option. getopt_long has already reported an unknown one. */
static int store_option(struct quantize_options *o, int code)
{
    const struct {
        int code;
        const char **value;
    } texts[] = {{SCHEME, &o->args.scheme},
                 {CONFIG, &o->args.config},
                 {RECIPE, &o->args.recipe},
                 {PRESET, &o->args.preset},
                 {'o', &o->args.out},
                 {JSON, &o->report},
                 {ISA, &o->isa},
                 {THREADS, &o->threads}};
    const struct {
        int code;
        bool *value;
    } flags[] = {{REPLACE, &o->args.replace}, {TABLE, &o->table}, {QUIET, &o->quiet}, {'h', &o->help}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code) {
            *texts[i].value = optarg;
            return EXIT_OK;
        }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].code == code) {
            *flags[i].value = true;
            return EXIT_OK;
        }
    return code == TARGETS       ? add(&o->targets, optarg)
           : code == IGNORE      ? add(&o->ignore, optarg)
           : code == SET         ? add(&o->settings, optarg)
           : code == ACTIVATIONS ? add(&o->activations, optarg)
           : code == STATES      ? add(&o->states, optarg)
           : code == COMPAT      ? set_compat(&o->args, optarg)
                                 : EXIT_USAGE;
}

static int parse(struct quantize_options *o, int argc, char **argv)
{
    o->args.struct_size = sizeof o->args;
    for (int c; (c = getopt_long(argc, argv, "ho:", long_options, NULL)) != -1;) {
        const int code = store_option(o, c);
        if (code != EXIT_OK || o->help)
            return code;
    }
    if (optind + 1 != argc)
        return print_error(EXIT_USAGE, "quantize: expected one model directory, got %d (see qobs quantize --help)",
                           argc - optind);
    if (!o->args.out)
        return print_error(EXIT_USAGE, "quantize: -o OUT_DIR is missing");
    o->args.model = argv[optind];
    o->args.targets = o->targets.items;
    o->args.target_count = o->targets.count;
    o->args.ignore = o->ignore.items;
    o->args.ignore_count = o->ignore.count;
    o->args.settings = o->settings.items;
    o->args.setting_count = o->settings.count;
    o->args.activations = o->activations.items;
    o->args.activation_count = o->activations.count;
    o->args.states = o->states.items;
    o->args.state_count = o->states.count;
    return EXIT_OK;
}

static void print_help(void)
{
    const char *summary;
    fputs(help, stdout);
    for (size_t i = 0; quant_scheme_name(i, &summary); i++)
        printf("  %-12s %s\n", quant_scheme_name(i, NULL), summary);
}

/* ---- Run --------------------------------------------------------------------------------------------------------- */

static int show_progress(void *context, const qobs_progress *progress)
{
    struct quantize_options *o = context;
    if (o->shown == 0)
        progress_start(&o->progress, progress->bytes_total);
    progress_add(&o->progress, progress->bytes_done - o->shown);
    o->shown = progress->bytes_done;
    return stop_signal != 0;
}

static int exit_code_of(int status)
{
    return status == QOBS_OK                                                   ? EXIT_OK
           : status == QOBS_ERROR_SYSTEM || status == QOBS_ERROR_OUT_OF_MEMORY ? EXIT_SYSTEM
                                                                               : EXIT_USAGE;
}

/* Writes the report, which has been opened before the work. */
static int write_report(struct output *output, const char *path, const char *text)
{
    struct fail f;
    if (strcmp(path, "-") == 0) {
        puts(text);
        return EXIT_OK;
    }
    if (output_write(output, text, strlen(text), 0) != 0)
        return print_error(EXIT_SYSTEM, "--json: %s: cannot write", path);
    return output_commit(output, &f) == 0 ? EXIT_OK : print_error(EXIT_SYSTEM, "--json: %s", f.message);
}

static int run(struct quantize_options *o, struct threads *threads)
{
    struct output report = {0};
    struct fail f;
    qobs_error error;
    char *text = NULL;
    const bool to_stdout = o->report && strcmp(o->report, "-") == 0;
    if (o->isa && qobs_isa_select(o->isa, &error) != QOBS_OK)
        return print_status_error(&error, "--isa");
    if (o->report && !to_stdout && output_open(&report, o->report, &f) != 0)
        return print_error(EXIT_USAGE, "--json: %s", f.message);
    o->args.runtime = &threads->runtime;
    o->args.progress = show_progress;
    o->args.context = o;
    o->args.report = &text;
    const double start = seconds_now();
    const int status = qobs_checkpoint_quantize(&o->args, &error);
    progress_stop(&o->progress);
    int code = exit_code_of(status);
    if (status == QOBS_ERROR_CANCELLED)
        code = EXIT_SYSTEM;
    else if (status != QOBS_OK)
        code = print_error(code, "%s", error.message);
    else if (!text)
        code = print_error(EXIT_SYSTEM, "no memory for the report");
    if (code == EXIT_OK)
        code = quantize_summary(text, seconds_now() - start, o->table, o->quiet || to_stdout);
    if (code == EXIT_OK && o->report)
        code = write_report(&report, o->report, text);
    output_abort(&report);
    o->args.report = NULL;
    free(text);
    return code;
}

int command_quantize(int argc, char **argv)
{
    struct quantize_options o = {0};
    struct threads threads = {0};
    int code = parse(&o, argc, argv);
    if (code == EXIT_OK && o.help)
        print_help();
    else if (code == EXIT_OK) {
        catch_signals();
        code = threads_start(&threads, o.threads);
        if (code == EXIT_OK)
            code = run(&o, &threads);
        threads_stop(&threads);
    }
    free(o.targets.items);
    free(o.ignore.items);
    free(o.settings.items);
    free(o.activations.items);
    free(o.states.items);
    if (stop_signal)
        end_by_signal();
    return code;
}
