/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The commands of the program. */
#ifndef QOBS_TOOLS_COMMANDS_H
#define QOBS_TOOLS_COMMANDS_H

#include "options.h"

extern const struct command command_audit, command_bench, command_calibrate, command_convert, command_info,
    command_merge, command_observe, command_plan, command_quantize, command_show;

/* Returns a command by index, as qobs --help lists them; NULL after the last one. */
const struct command *command_at(size_t index);

/* The output of qobs info; exit codes. */
/* Explains the settings of a preset. */
int info_preset(const char *name);

/* Says what a file or directory holds: a saved state, or tensors such as scales or a checkpoint. `all`: lists every
 * tensor. */
int info_file(const char *path, bool all);
int info_tensor(const char *path, const char *name);

/* The same for GGUF. */
int info_gguf(const char *path, bool all);
int info_gguf_tensor(const char *path, const char *name);
void print_first_numbers(const double *numbers, size_t count);

/* Prints names alone, a line each: what may stand in a command line. words[0] is the kind. */
int info_list(const char *const *words, size_t count);

/* Rows that several commands have. */
#define ISA_ROW TEXT_ROW("isa", "NAME", machine.isa, "use this instruction set", "qobs info lists them")
#define THREADS_ROW                                                                                                    \
    TEXT_ROW("threads", "N", machine.threads, "number of threads (default: one for each processor)", NULL)
/* --json as a flag; what it prints differs. */
#define JSON_ROW(what, details) FLAG_ROW("json", json, "print " what " as JSON", details)
/* --json REPORT, a file or standard output. */
#define REPORT_ROW                                                                                                     \
    TEXT_ROW("json", "REPORT", run.report, "write a report there",                                                     \
             "- for standard output, which then holds nothing else")
#define TABLE_ROW(member) FLAG_ROW("table", member, "list all layers, not the ten that quantize worst", NULL)
#define RESULTS_ROW OUT_ROW("FILE.safetensors", out, "write the results there", NULL)
#define PRESET_ROW                                                                                                     \
    TEXT_ROW("preset", "NAME", preset, "the observer", "qobs info lists them, qobs info NAME explains its settings")
#define SETTING_ROW(and)                                                                                               \
    LIST_ROW("set", "KEY=VALUE", settings, setting_count, "a setting, under upstream's own name",                      \
             "num_bits=4, group_size=128, dtype=qint8; may be repeated" and)
#define BASE_NAME_ROW                                                                                                  \
    TEXT_ROW("base-name", "NAME", base_name, "kind of the tensors: weight, input, output, q, k, v",                    \
             "default: input for llmc.static_minmax, llmc.minmax and llmc.mse, else weight")
/* Sources of the schemes of a model. */
#define SCHEME_ROW                                                                                                     \
    TEXT_ROW("scheme", "NAME", args.scheme, "quantization scheme, such as W4A16", "from the list below, in any case")
#define CONFIG_ROW                                                                                                     \
    TEXT_ROW("config", "FILE", args.config, "a whole quantization_config in place of a scheme", "in JSON")
#define RECIPE_ROW                                                                                                     \
    TEXT_ROW("recipe", "FILE", args.recipe, "a recipe of llm-compressor in place of a scheme", "in YAML or JSON")
#define TARGETS_ROW(what)                                                                                              \
    LIST_ROW("targets", "NAME", args.targets, args.target_count, what,                                                 \
             "a name, or re: and a pattern that matches from its start, so re:.*q_proj finds every q_proj; may be "    \
             "repeated (default: linear layers; no embeddings, norms, routers or lm_head)")
#define IGNORE_ROW(what)                                                                                               \
    LIST_ROW("ignore", "NAME", args.ignore, args.ignore_count, what, "in the same form; may be repeated")
#define ACTIVATIONS_ROW(details)                                                                                       \
    LIST_ROW("activations", "FILE", args.activations, args.activation_count, "recorded activations", details)
#define STATES_ROW                                                                                                     \
    LIST_ROW("states", "DIR", args.states, args.state_count, "saved observers of activations",                         \
             "in place of recordings; several directories are merged")
#define FILL_ROW(details)                                                                                              \
    WORD_ROW("fill-experts", args.fill_experts, "refuse max median", "scales of experts that no token reached", details)
#define ARCHITECTURES_ROW                                                                                              \
    TEXT_ROW("architectures", "FILE", args.architectures, "what is known of architectures, before the program's own",  \
             "in JSON, which python -m libqobs.architectures writes")
#define IMPORTANCE_ROW(details)                                                                                        \
    LIST_ROW("importance", "FILE", args.importance, args.importance_count, "importance of the columns of weights",     \
             details)

#endif
