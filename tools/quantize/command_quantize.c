/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs quantize: parses the options, shows progress and prints the summary. The work is in checkpoint/. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands.h"
#include "files/status.h"
#include "files/text.h"
#include "outputs.h"
#include "parts/parts.h"
#include "program.h"
#include "progress.h"
#include "qobs/checkpoint.h"
#include "quantize/quantize_gguf.h"
#include "schemes.h"

/* ---- Options ----------------------------------------------------------------------------------------------------- */

struct quantize_options {
    struct machine_options machine;
    qobs_checkpoint_quantize_args args;
    const char *finish;
    bool accept_unknown;
    bool pure, dry_run; /* of GGUF files */
    int search;         /* of their blocks; index of a word */
    const char *const *tensor_types;
    size_t tensor_type_count;
    struct table_run run;
};

/* Parses "I/N". */
static int set_part(void *options, const char *text)
{
    qobs_checkpoint_quantize_args *args = &((struct quantize_options *)options)->args;
    const char *slash = strchr(text, '/');
    const bool digits = strspn(text, "0123456789/") == strlen(text) && slash == strrchr(text, '/');
    const unsigned long i = strtoul(text, NULL, 10), n = slash ? strtoul(slash + 1, NULL, 10) : 0;
    if (!digits || i < 1 || i > n || n > MAX_PARTS)
        return print_error(EXIT_USAGE, "--part: is '%s', allowed is I/N with I from 1 to N and N up to %d", text,
                           MAX_PARTS);
    args->part = i;
    args->part_count = n;
    return EXIT_OK;
}

#define AT(member) offsetof(struct quantize_options, member)
#define DIALECT_ROW                                                                                                    \
    TEXT_ROW("dialect", "NAME", args.dialect, "names, layout and configuration of the output",                         \
             "compressed-tensors (default); awq, gptq and gptq-v2: integers in groups or channels without quantized "  \
             "activations, W4A16 and W4A16_ASYM; modelopt: FP8, FP8_DYNAMIC, FP8_BLOCK, NVFP4, NVFP4A16, MXFP8; "      \
             "fp8: FP8_BLOCK")
#define OUTPUT_ROWS                                                                                                    \
    FLAG_ROW("replace", args.replace, "if OUT_DIR holds files, replace it at the end", "as a whole"),                  \
        FLAG_ROW("keep-findings", args.keep_findings, "write OUT_DIR although it has faults or no runtime loads it",   \
                 "findings of the audit leave the exit status 3"),                                                     \
        FLAG_ROW("accept-unknown", accept_unknown, "exit status 0 although the architecture is not known",             \
                 "which is 3 otherwise: nothing says that a runtime loads the output"),                                \
        REPORT_ROW, TABLE_ROW(run.table), FLAG_ROW("quiet", run.quiet, "print no summary", NULL), ISA_ROW, THREADS_ROW
static const struct option_row rows[] = {
    SCHEME_ROW,
    CONFIG_ROW,
    RECIPE_ROW,
    TARGETS_ROW("modules to quantize"),
    IGNORE_ROW("modules to leave as they are"),
    TEXT_ROW("preset", "NAME", args.preset, "observer of the weights",
             "default llmc.memoryless_minmax; llmc.memoryless_mse searches; qobs info lists all"),
    LIST_ROW("set", "KEY=VALUE", args.settings, args.setting_count, "a setting of the scheme or the observer",
             "a member of the scheme's weights, its format or a setting of the observer: group_size=64; may be "
             "repeated"),
    ACTIVATIONS_ROW("for FP8, W8A8_STATIC, NVFP4 and the key/value cache: safetensors with tensors <module>.input, "
                    "<attention>.k_states, <attention>.v_states; may be repeated, a batch each; or the directory that "
                    "python -m libqobs.record has written"),
    STATES_ROW,
    FLAG_ROW("split-experts", args.split_experts, "quantize experts that vLLM alone loads so",
             "those of Granite, Aria and Step-3.7; transformers does not load the output"),
    FILL_ROW("refuse (default): they stop the run; max, median: the largest or median scale of their layer's others"),
    IMPORTANCE_ROW("for searches (--preset llmc.imatrix_mse): imatrix files of llama.cpp (GGUF, .dat, .imatrix) or "
                   "recorded activations; may be repeated"),
    WORD_ROW(
        "compat", args.compat, "vllm llm-compressor llm-compressor-0.14 next", "vllm (default), or a release",
        "llm-compressor: byte for byte what model_free_ptq of its release writes, which is 0.14; next: of its newest "
        "pre-release"),
    ARCHITECTURES_ROW,
    WORD_ROW("draft", args.draft, "as-loaded keep quantize", "layers for speculative decoding (MTP, nextn)",
             "as-loaded (default): quantized if vLLM is known to load those of the architecture so, else kept; keep: "
             "as they are, in ignore; quantize: as other layers"),
    DIALECT_ROW,
    LIST_ROW("tensor-type", "PATTERN=TYPE", tensor_types, tensor_type_count, "the type of tensors of a GGUF file",
             "a regular expression that is found in their names: ffn_down=Q6_K; the first that is found counts; may be "
             "repeated"),
    FLAG_ROW("pure", pure, "one type for all tensors of a GGUF file that are quantized", "no mixture"),
    WORD_ROW("search", search, "ggml optimal", "how blocks of a GGUF file are found",
             "ggml (default): its bytes; optimal: less weighted error than those, in more time"),
    FLAG_ROW("dry-run", dry_run, "print types and sizes of a GGUF file and write nothing", NULL),
    OUT_ROW("DIR", args.out, "the output: a directory that is new or empty; a file for a GGUF file", NULL),
    {.name = "part",
     .argument = "I/N",
     .kind = OPTION_CALL,
     .call = set_part,
     .help = "write part I of N to OUT_DIR.parts",
     .more = "N processes or machines share the model"},
    TEXT_ROW("finish", "OUT_DIR", finish, "join the parts to the bytes of one run", NULL),
    TEXT_ROW(
        "fetch", "COMMAND", args.fetch, "fetch the shards that MODEL lacks, quantize and remove them one by one",
        "for /bin/sh, which runs it in a folder where it leaves the file {}: 'hf download ORG/NAME {} --local-dir .'; "
        "a run that stops goes on if it is started again"),
    FLAG_ROW("allow-mixed-sets", args.allow_mixed_sets, "write fused layers with several schemes",
             "vLLM runs q_proj, k_proj and v_proj, or gate_proj and up_proj, as one matrix and cannot load them then"),
    OUTPUT_ROWS,
};

/* The same for convert, which has no observer. */
static const struct option_row convert_rows[] = {
    DIALECT_ROW,
    SCHEME_ROW,
    CONFIG_ROW,
    LIST_ROW("set", "KEY=VALUE", args.settings, args.setting_count, "a setting of the scheme",
             "a member of the scheme's weights or its format: group_size=64; may be repeated"),
    ARCHITECTURES_ROW,
    OUT_ROW("DIR", args.out, "the output: a directory that is new or empty", NULL),
    OUTPUT_ROWS,
};

/* Runs that do not use all options. */
enum run_kind { RUN_FINISH = 1, RUN_GGUF = 2, RUN_SAFETENSORS = 4 };

static const char *const kinds[] = {[RUN_FINISH] = "the parts were made with it or without",
                                    [RUN_GGUF] = "the model is a GGUF file",
                                    [RUN_SAFETENSORS] = "the model is no GGUF file"};

/* Refuses an option that changes nothing in a run. */
static int check_unused(const struct quantize_options *o, enum run_kind kind)
{
    enum { FINISH = RUN_FINISH, GGUF = RUN_GGUF, BOTH = RUN_FINISH | RUN_GGUF };
    const qobs_checkpoint_quantize_args *a = &o->args;
    const struct {
        const char *name;
        bool given;
        unsigned unused; /* in these runs */
    } options[] = {{"scheme", a->scheme, FINISH},
                   {"config", a->config, BOTH},
                   {"recipe", a->recipe, BOTH},
                   {"targets", a->target_count > 0, BOTH},
                   {"ignore", a->ignore_count > 0, BOTH},
                   {"preset", a->preset, BOTH},
                   {"set", a->setting_count > 0, FINISH},
                   {"activations", a->activation_count > 0, BOTH},
                   {"states", a->state_count > 0, FINISH},
                   {"importance", a->importance_count > 0, FINISH},
                   {"split-experts", a->split_experts, BOTH},
                   {"fill-experts", a->fill_experts != QOBS_FILL_REFUSE, BOTH},
                   {"dialect", a->dialect, BOTH},
                   {"compat", a->compat != QOBS_COMPAT_VLLM, BOTH},
                   {"part", a->part_count > 0, BOTH},
                   {"fetch", a->fetch, FINISH},
                   {"allow-mixed-sets", a->allow_mixed_sets, BOTH},
                   {"architectures", a->architectures, BOTH},
                   {"draft", a->draft != QOBS_DRAFT_AS_LOADED, BOTH},
                   {"accept-unknown", o->accept_unknown, GGUF},
                   {"tensor-type", o->tensor_type_count > 0, RUN_FINISH | RUN_SAFETENSORS},
                   {"pure", o->pure, RUN_FINISH | RUN_SAFETENSORS},
                   {"search", o->search != 0, RUN_FINISH | RUN_SAFETENSORS},
                   {"dry-run", o->dry_run, RUN_FINISH | RUN_SAFETENSORS}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given && options[i].unused & kind)
            return print_error(EXIT_USAGE, "%s--%s changes nothing here; %s", kind == RUN_FINISH ? "--finish: " : "",
                               options[i].name, kinds[kind]);
    return EXIT_OK;
}

static int check_finish(const struct quantize_options *o, int count)
{
    if (count > 0 || o->args.out)
        return print_error(EXIT_USAGE, "--finish: the directory is its argument; a model and -o are not allowed");
    return check_unused(o, RUN_FINISH);
}

static int check_arguments(const struct quantize_options *o, int count, bool gguf)
{
    const char *name = o->args.keep_numbers ? "convert" : "quantize";
    if (o->finish)
        return check_finish(o, count);
    if (count != 1)
        return print_error(EXIT_USAGE, "%s: expected one model, got %d (see qobs %s -h)", name, count, name);
    RETURN_IF_NOT_OK(check_unused(o, gguf ? RUN_GGUF : RUN_SAFETENSORS));
    if (gguf && o->args.fetch)
        return print_error(EXIT_USAGE, "--fetch: fetches shards of safetensors, and the model is a GGUF file, which is "
                                       "read as a whole: fetch the file first");
    if (gguf && o->dry_run)
        return o->args.out || o->args.replace || o->args.keep_findings
                   ? print_error(EXIT_USAGE,
                                 "--dry-run: writes nothing; -o, --replace and --keep-findings are not allowed")
                   : EXIT_OK;
    if (!o->args.out)
        return print_error(EXIT_USAGE, "%s: -o %s is missing", name, gguf ? "OUT.gguf" : "OUT_DIR");
    const bool needs_scheme = !gguf && !o->args.keep_numbers;
    return needs_scheme && !o->args.scheme && !o->args.config && !o->args.recipe ? print_missing_scheme("--scheme")
                                                                                 : EXIT_OK;
}

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

/* The signal that asks to stop; 0: none. */
static volatile sig_atomic_t stop_signal;

static void request_stop(int signal_number) { stop_signal = signal_number; }

/* Lets the run end in order, so that it removes its directory. Signals that were ignored stay ignored. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = request_stop}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < OUTPUT_SIGNALS; i++)
        if (output_signals[i] != SIGABRT && sigaction(output_signals[i], NULL, &before) == 0 &&
            before.sa_handler != SIG_IGN)
            sigaction(output_signals[i], &action, NULL);
}

/* Ends the program by the signal that was caught. */
static void end_by_signal(void)
{
    signal(stop_signal, SIG_DFL);
    raise(stop_signal);
}

/* ---- Run --------------------------------------------------------------------------------------------------------- */

static int show_progress(void *context, const qobs_progress *progress)
{
    struct quantize_options *o = context;
    progress_update(&o->run.progress, progress);
    return stop_signal != 0;
}

/* The report is no part of the model, of the output, and no other input. */
static int check_report(const struct quantize_options *o)
{
    const struct output_option report = {"--json", o->run.report, true};
    const qobs_checkpoint_quantize_args *a = &o->args;
    const struct list_argument lists[] = {{"config", &a->config, 1},
                                          {"recipe", &a->recipe, 1},
                                          {"architectures", &a->architectures, 1},
                                          {"activations", a->activations, a->activation_count},
                                          {"states", a->states, a->state_count},
                                          {"importance", a->importance, a->importance_count}};
    struct stat status;
    const char *slash = a->model ? strrchr(a->model, '/') : NULL;
    const bool file = a->model && stat(a->model, &status) == 0 && S_ISREG(status.st_mode);
    OWNED char *model =
        file ? text_format("%.*s", slash ? (int)(slash - a->model) + 1 : 1, slash ? a->model : ".") : NULL;
    OWNED char *parts = parts_directory(o->finish ? o->finish : a->out);
    RETURN_IF_NOT_OK(check_outputs(&report, 1));
    const char *const directories[] = {file ? model : a->model, a->out, o->finish, parts};
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
        RETURN_IF_NOT_OK(check_output_apart(&report, directories[i], true));
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (size_t i = 0; i < lists[k].count; i++)
            RETURN_IF_NOT_OK(check_output_apart(&report, lists[k].items[i], false));
    return EXIT_OK;
}

static int print_quantize_error(const struct quantize_options *o, const qobs_error *error)
{
    const struct scheme_words words = {.command = o->args.keep_numbers ? "convert" : "quantize",
                                       .scheme = o->args.scheme,
                                       .presets = &o->args.preset,
                                       .preset_count = o->args.preset != NULL,
                                       .settings = o->args.settings,
                                       .setting_count = o->args.setting_count};
    return print_member_error(
        &words, "scheme config recipe targets ignore preset setting states activations importance dialect", error);
}

static int quantize(struct quantize_options *o)
{
    RELEASED_BY(report_close) struct report_file report = {0};
    qobs_error error;
    OWNED char *text = NULL;
    const bool to_stdout = o->run.report && strcmp(o->run.report, "-") == 0;
    if (!o->finish)
        RETURN_IF_NOT_OK(check_model(o->args.model));
    RETURN_IF_NOT_OK(check_report(o));
    RETURN_IF_NOT_OK(report_open(&report, o->run.report));
    o->args.progress = show_progress;
    o->args.context = o;
    o->args.report = &text;
    const double start = seconds_now();
    const qobs_checkpoint_finish_args finish = {.struct_size = sizeof finish,
                                                .out = o->finish,
                                                .replace = o->args.replace,
                                                .keep_findings = o->args.keep_findings,
                                                .report = &text};
    const int status = o->finish ? qobs_checkpoint_finish(&finish, &error) : qobs_checkpoint_quantize(&o->args, &error);
    progress_stop(&o->run.progress);
    if (status == QOBS_ERROR_FINDINGS)
        quantize_print_findings(text);
    if (status != QOBS_OK)
        return status == QOBS_ERROR_CANCELLED ? exit_code_of(status) : print_quantize_error(o, &error);
    if (!text)
        return print_error(EXIT_SYSTEM, "no memory for the report");
    if (o->run.report)
        RETURN_IF_NOT_OK(report_write(&report, text));
    RETURN_IF_NOT_OK(report_publish(&report, text));
    const struct summary_options summary = {
        .all_layers = o->run.table, .quiet = o->run.quiet || to_stdout, .accept_unknown = o->accept_unknown};
    return quantize_summary(text, o->finish ? 0 : seconds_now() - start, &summary);
}

static int run_gguf(struct quantize_options *o, const char *model, const struct threads *threads)
{
    struct gguf_quantize_args args = {.model = model,
                                      .scheme = o->args.scheme,
                                      .out = o->args.out,
                                      .replace = o->args.replace,
                                      .pure = o->pure,
                                      .dry_run = o->dry_run,
                                      .tensor_types = {o->tensor_types, o->tensor_type_count},
                                      .importance = {o->args.importance, o->args.importance_count},
                                      .states = {o->args.states, o->args.state_count},
                                      .settings = {o->args.settings, o->args.setting_count},
                                      .optimal = o->search != 0,
                                      .keep_findings = o->args.keep_findings,
                                      .runtime = &threads->runtime};
    return quantize_gguf(&args, &o->run);
}

static int run(void *options, int count, char **models, struct threads *threads)
{
    struct quantize_options *o = options;
    const bool gguf = count == 1 && !o->args.keep_numbers && is_gguf_file(models[0]);
    RETURN_IF_NOT_OK(check_arguments(o, count, gguf));
    if (gguf)
        return run_gguf(o, models[0], threads);
    o->args.struct_size = sizeof o->args;
    o->args.model = models[0];
    o->args.runtime = &threads->runtime;
    catch_signals();
    const int code = quantize(o);
    if (stop_signal)
        end_by_signal();
    return code;
}

static void print_all_schemes(void)
{
    print_schemes();
    print_gguf_schemes();
}

const struct command command_quantize = {
    .name = "quantize",
    .run = run,
    .size = sizeof(struct quantize_options),
    .threaded = true,
    .summary = "a quantized copy of a model, for vLLM and transformers",
    .usage = "MODEL --scheme NAME -o OUT_DIR [OPTION]...\n"
             "IN.gguf --scheme NAME -o OUT.gguf [OPTION]...\n"
             "--finish OUT_DIR [OPTION]...",
    .description = "Writes a quantized copy of a model in the format of compressed-tensors. The summary says which "
                   "runtimes load the scheme. MODEL is the model's directory, its *.safetensors.index.json or its only "
                   ".safetensors in that. OUT_DIR appears when it is complete.\n"
                   "If MODEL is a GGUF file, so is the output, with the types and the bytes of llama-quantize.\n"
                   "The output is audited first: if a fault is found, nothing is written and the exit status is 3. If "
                   "nothing was quantized, or nothing uses what is given, a warning says so and the exit status is 3.",
    OPTION_ROWS(rows),
    .example = "qobs quantize model --scheme W4A16 -o model-W4A16",
    .print_more = print_all_schemes};

static int run_convert(void *options, int count, char **models, struct threads *threads)
{
    ((struct quantize_options *)options)->args.keep_numbers = true;
    return run(options, count, models, threads);
}

const struct command command_convert = {
    .name = "convert",
    .run = run_convert,
    .size = sizeof(struct quantize_options),
    .threaded = true,
    .summary = "a quantized model in another dialect, with the same numbers",
    .usage = "MODEL --dialect NAME -o OUT_DIR [OPTION]...",
    .description = "Writes a copy of a model that is quantized already: other names, another layout, another "
                   "configuration, and the same numbers. It is quantize that must change no number, and refuses to do "
                   "so otherwise. Without --scheme and --config the scheme is that which the model's configuration "
                   "states, or that of its integers (AWQ, GPTQ); scales of inputs stay.",
    OPTION_ROWS(convert_rows),
    .example = "qobs convert model-AWQ --dialect gptq -o model-GPTQ",
    .print_more = print_schemes};
