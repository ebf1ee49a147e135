/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Parses the command line of qobs quantize. */
#include "quantize_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "schemes/quant_config.h"

static const char help[] =
    "usage: qobs quantize MODEL_DIR --scheme NAME -o OUT_DIR [OPTION]...\n"
    "       qobs quantize --finish OUT_DIR [--replace] [--json REPORT] [--table] [--quiet]\n"
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
    "  --importance FILE  importance of the columns of weights, for searches (--preset llmc.imatrix_mse): imatrix "
    "files of\n"
    "                    llama.cpp (GGUF, .dat, .imatrix) or recorded activations; may be repeated\n"
    "  --compat NAME     vllm (default), or llm-compressor: byte for byte what model_free_ptq writes\n"
    "  -o, --out DIR     the output: a directory that is new or empty\n"
    "  --part I/N        write part I of N to OUT_DIR.parts; N processes or machines share the model\n"
    "  --finish OUT_DIR  join the parts to the bytes of one run\n"
    "  --replace         if OUT_DIR holds files, replace it as a whole at the end\n"
    "  --json REPORT     write a report there (- for standard output, without the summary)\n"
    "  --table           list all layers, not the ten with the largest errors\n"
    "  --quiet           print no summary\n"
    "  --isa NAME        use this instruction set (qobs info lists them)\n"
    "  --threads N       number of threads (default: one for each processor)\n"
    "  --help            print this and exit\n"
    "\n"
    "schemes:\n";

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
    IMPORTANCE,
    COMPAT,
    PART,
    FINISH,
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
                                             {"importance", required_argument, NULL, IMPORTANCE},
                                             {"compat", required_argument, NULL, COMPAT},
                                             {"out", required_argument, NULL, 'o'},
                                             {"part", required_argument, NULL, PART},
                                             {"finish", required_argument, NULL, FINISH},
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

/* Parses "I/N". */
static int set_part(qobs_checkpoint_quantize_args *args, const char *text)
{
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

/* Stores one option. getopt_long has already reported an unknown one. */
static int store_option(struct quantize_options *o, int code)
{
    const struct {
        int code;
        const char **value;
    } texts[] = {
        {SCHEME, &o->args.scheme}, {CONFIG, &o->args.config}, {RECIPE, &o->args.recipe}, {PRESET, &o->args.preset},
        {'o', &o->args.out},       {FINISH, &o->finish},      {JSON, &o->report},        {ISA, &o->isa},
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
           : code == IMPORTANCE  ? add(&o->importance, optarg)
           : code == COMPAT      ? set_compat(&o->args, optarg)
           : code == PART        ? set_part(&o->args, optarg)
                                 : EXIT_USAGE;
}

int quantize_options_parse(struct quantize_options *o, int argc, char **argv)
{
    o->args.struct_size = sizeof o->args;
    for (int c; (c = getopt_long(argc, argv, "ho:", long_options, NULL)) != -1;) {
        const int code = store_option(o, c);
        if (code != EXIT_OK || o->help)
            return code;
    }
    if (o->finish)
        return optind == argc && !o->args.out
                   ? EXIT_OK
                   : print_error(EXIT_USAGE, "--finish: the directory is its argument; a model and -o are not allowed");
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
    o->args.importance = o->importance.items;
    o->args.importance_count = o->importance.count;
    return EXIT_OK;
}

void quantize_options_help(void)
{
    const char *summary;
    fputs(help, stdout);
    for (size_t i = 0; quant_scheme_name(i, &summary); i++)
        printf("  %-12s %s\n", quant_scheme_name(i, NULL), summary);
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
