/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Parses the command line of qobs quantize. */
#include "quantize_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "program.h"
#include "schemes.h"
#include "suggest.h"

static int set_compat(void *options, const char *name)
{
    qobs_checkpoint_quantize_args *args = &((struct quantize_options *)options)->args;
    if (strcmp(name, "vllm") != 0 && strcmp(name, "llm-compressor") != 0)
        return print_error(EXIT_USAGE, "--compat: is '%s', allowed are vllm and llm-compressor", name);
    args->compat = *name == 'v' ? QOBS_COMPAT_VLLM : QOBS_COMPAT_LLM_COMPRESSOR;
    return EXIT_OK;
}

static int set_fill(void *options, const char *name)
{
    return fill_experts_option(name, &((struct quantize_options *)options)->args.fill_experts);
}

/* Parses "I/N". */
static int set_part(void *options, const char *text)
{
    qobs_checkpoint_quantize_args *args = &((struct quantize_options *)options)->args;
    enum { MAX_PARTS = 100000 };
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
    {.name = "targets",
     .argument = "NAME",
     .kind = OPTION_LIST,
     .offset = AT(targets),
     .help = "modules to quantize",
     .more = "a name, or re: and a pattern that matches from its start, so re:.*q_proj finds every q_proj; may be "
             "repeated (default: linear layers; no embeddings, norms, routers or lm_head)"},
    {.name = "ignore",
     .argument = "NAME",
     .kind = OPTION_LIST,
     .offset = AT(ignore),
     .help = "modules to leave as they are",
     .more = "in the same form; may be repeated"},
    {.name = "preset",
     .argument = "NAME",
     .kind = OPTION_TEXT,
     .offset = AT(args.preset),
     .help = "observer of the weights",
     .more = "default llmc.memoryless_minmax; llmc.memoryless_mse searches; qobs info lists all"},
    {.name = "set",
     .argument = "KEY=VALUE",
     .kind = OPTION_LIST,
     .offset = AT(settings),
     .help = "a setting of the scheme or the observer",
     .more = "a member of the scheme's weights, its format or a setting of the observer: group_size=64; may be "
             "repeated"},
    {.name = "activations",
     .argument = "FILE",
     .kind = OPTION_LIST,
     .offset = AT(activations),
     .help = "recorded activations",
     .more = "for FP8, NVFP4 and the key/value cache: safetensors with tensors <module>.input, <attention>.k_states, "
             "<attention>.v_states; may be repeated, a batch each; or the directory that python -m qobs.record has "
             "written"},
    {.name = "states",
     .argument = "DIR",
     .kind = OPTION_LIST,
     .offset = AT(states),
     .help = "saved observers of activations",
     .more = "in place of recordings; several directories are merged"},
    {.name = "split-experts",
     .kind = OPTION_FLAG,
     .offset = AT(args.split_experts),
     .help = "quantize experts that vLLM alone loads so",
     .more = "those of Granite, Aria and Step-3.7; transformers does not load the output"},
    {.name = "fill-experts",
     .argument = "NAME",
     .kind = OPTION_CALL,
     .call = set_fill,
     .help = "scales of experts that no token reached",
     .more = "refuse (default): they stop the run; max, median: the largest or median scale of their layer's others"},
    {.name = "importance",
     .argument = "FILE",
     .kind = OPTION_LIST,
     .offset = AT(importance),
     .help = "importance of the columns of weights",
     .more = "for searches (--preset llmc.imatrix_mse): imatrix files of llama.cpp (GGUF, .dat, .imatrix) or recorded "
             "activations; may be repeated"},
    {.name = "compat",
     .argument = "NAME",
     .kind = OPTION_CALL,
     .call = set_compat,
     .help = "vllm (default), or llm-compressor",
     .more = "llm-compressor: byte for byte what model_free_ptq writes"},
    {.name = "out",
     .letter = 'o',
     .argument = "DIR",
     .kind = OPTION_TEXT,
     .offset = AT(args.out),
     .help = "the output: a directory that is new or empty"},
    {.name = "part",
     .argument = "I/N",
     .kind = OPTION_CALL,
     .call = set_part,
     .help = "write part I of N to OUT_DIR.parts",
     .more = "N processes or machines share the model"},
    {.name = "finish",
     .argument = "OUT_DIR",
     .kind = OPTION_TEXT,
     .offset = AT(finish),
     .help = "join the parts to the bytes of one run"},
    {.name = "allow-mixed-sets",
     .kind = OPTION_FLAG,
     .offset = AT(args.allow_mixed_sets),
     .help = "write fused layers with several schemes",
     .more = "vLLM runs q_proj, k_proj and v_proj, or gate_proj and up_proj, as one matrix and cannot load them then"},
    {.name = "replace",
     .kind = OPTION_FLAG,
     .offset = AT(args.replace),
     .help = "if OUT_DIR holds files, replace it at the end",
     .more = "as a whole"},
    {.name = "keep-findings",
     .kind = OPTION_FLAG,
     .offset = AT(args.keep_findings),
     .help = "write OUT_DIR although the audit finds faults",
     .more = "the exit status stays 3"},
    REPORT_ROW(struct quantize_options, report),
    TABLE_ROW(struct quantize_options),
    {.name = "quiet", .kind = OPTION_FLAG, .offset = AT(quiet), .help = "print no summary"},
    ISA_ROW(struct quantize_options),
    THREADS_ROW(struct quantize_options),
};

int quantize_options_parse(struct quantize_options *o, int argc, char **argv, bool *done)
{
    o->args.struct_size = sizeof o->args;
    const int code = options_parse(&command_quantize, o, argc, argv, done);
    if (code != EXIT_OK || *done)
        return code;
    if (o->finish)
        return optind == argc && !o->args.out
                   ? EXIT_OK
                   : print_error(EXIT_USAGE, "--finish: the directory is its argument; a model and -o are not allowed");
    if (optind + 1 != argc)
        return print_error(EXIT_USAGE, "quantize: expected one model, got %d (see qobs quantize -h)", argc - optind);
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
    o->args.importance = o->importance.items;
    o->args.importance_count = o->importance.count;
    return EXIT_OK;
}

const struct command command_quantize = {
    .name = "quantize",
    .run = quantize_run,
    .summary = "a quantized copy of a model, which vLLM loads",
    .usage = "MODEL --scheme NAME -o OUT_DIR [OPTION]...\n"
             "--finish OUT_DIR [OPTION]...",
    .description = "Writes a quantized copy of a model in the format of compressed-tensors, which vLLM loads. MODEL is "
                   "the model's directory, its *.safetensors.index.json or its only .safetensors in that. OUT_DIR "
                   "appears when it is complete.\n"
                   "The output is audited first: if a fault is found, nothing is written and the exit status is 3. If "
                   "nothing was quantized, a warning says so and the exit status is 3.",
    .options = rows,
    .option_count = sizeof rows / sizeof *rows,
    .example = "qobs quantize model --scheme W4A16 -o model-W4A16",
    .print_more = print_schemes};

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

/* Returns true and prints the error if a setting is one that the observer does not know. */
static bool print_setting_error(const struct quantize_options *o, const qobs_error *error)
{
    qobs_config *config;
    char key[64], unknown[96];
    const char *preset = o->args.preset ? o->args.preset : "llmc.memoryless_minmax", *near = NULL;
    if (qobs_config_create(&config, preset, NULL, NULL) != QOBS_OK)
        return false;
    for (size_t i = 0; !near && i < o->settings.count; i++) {
        const char *text = o->settings.items[i];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(text, "="), text);
        snprintf(unknown, sizeof unknown, "'%s' is no setting", key);
        if (strstr(error->message, unknown))
            near = suggest(key, suggest_key, config);
    }
    if (near)
        print_error(EXIT_USAGE, "--set: '%s' is no setting of %s; did you mean '%s'? (qobs info %s explains all)", key,
                    preset, near, preset);
    qobs_config_destroy(config);
    return near != NULL;
}

int quantize_print_error(const struct quantize_options *o, const qobs_error *error, int code)
{
    const bool unknown = strstr(error->message, "is unknown") != NULL;
    const char *scheme = o->args.scheme, *preset = o->args.preset;
    const char *near =
        unknown && scheme && strncmp(error->message, "scheme:", 7) == 0 ? suggest(scheme, scheme_name, NULL) : NULL;
    if (near)
        return print_error(code, "--scheme: '%s' is unknown; did you mean '%s'? (qobs quantize --help lists all)",
                           scheme, near);
    if (preset && strncmp(error->message, "preset:", 7) == 0 && !is_preset(preset))
        return print_preset_error(error, "--preset", preset);
    if (print_setting_error(o, error))
        return code;
    return print_error(code, "%s", error->message);
}

void quantize_options_free(struct quantize_options *o)
{
    free(o->targets.items);
    free(o->ignore.items);
    free(o->settings.items);
    free(o->activations.items);
    free(o->states.items);
    free(o->importance.items);
}
