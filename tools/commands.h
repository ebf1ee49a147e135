/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The commands of the program. */
#ifndef QOBS_TOOLS_COMMANDS_H
#define QOBS_TOOLS_COMMANDS_H

#include "options.h"

extern const struct command command_audit, command_bench, command_calibrate, command_info, command_merge,
    command_observe, command_quantize, command_show;

/* Returns a command by index, as qobs --help lists them; NULL after the last one. */
const struct command *command_at(size_t index);

/* Names of commands, for suggest. context: not used. */
const char *suggest_command(const void *context, size_t index);

/* Rows that several commands have. `type` is the structure that options_parse fills; the row names its member. */
#define ISA_ROW(type)                                                                                                  \
    {.name = "isa",                                                                                                    \
     .argument = "NAME",                                                                                               \
     .kind = OPTION_TEXT,                                                                                              \
     .offset = offsetof(type, isa),                                                                                    \
     .help = "use this instruction set",                                                                               \
     .more = "qobs info lists them"}
#define THREADS_ROW(type)                                                                                              \
    {.name = "threads",                                                                                                \
     .argument = "N",                                                                                                  \
     .kind = OPTION_TEXT,                                                                                              \
     .offset = offsetof(type, threads),                                                                                \
     .help = "number of threads (default: one for each processor)"}
/* --json as a flag; what it prints differs. */
#define JSON_ROW(type, what, details)                                                                                  \
    {.name = "json",                                                                                                   \
     .kind = OPTION_FLAG,                                                                                              \
     .offset = offsetof(type, json),                                                                                   \
     .help = "print " what " as JSON",                                                                                 \
     .more = (details)}
/* --json REPORT, a file or standard output. */
#define REPORT_ROW(type, member)                                                                                       \
    {.name = "json",                                                                                                   \
     .argument = "REPORT",                                                                                             \
     .kind = OPTION_TEXT,                                                                                              \
     .offset = offsetof(type, member),                                                                                 \
     .help = "write a report there",                                                                                   \
     .more = "- for standard output, which then holds nothing else"}
#define TABLE_ROW(type)                                                                                                \
    {.name = "table",                                                                                                  \
     .kind = OPTION_FLAG,                                                                                              \
     .offset = offsetof(type, table),                                                                                  \
     .help = "list all layers, not the ten that quantize worst"}
#define RESULTS_ROW(type)                                                                                              \
    {.name = "out",                                                                                                    \
     .letter = 'o',                                                                                                    \
     .argument = "FILE.safetensors",                                                                                   \
     .kind = OPTION_TEXT,                                                                                              \
     .offset = offsetof(type, out),                                                                                    \
     .help = "write the results there"}
#define PRESET_ROW(type)                                                                                               \
    {.name = "preset",                                                                                                 \
     .argument = "NAME",                                                                                               \
     .kind = OPTION_TEXT,                                                                                              \
     .offset = offsetof(type, preset),                                                                                 \
     .help = "the observer",                                                                                           \
     .more = "qobs info lists them, qobs info NAME explains its settings"}
#define SETTING_ROW(type, and)                                                                                         \
    {.name = "set",                                                                                                    \
     .argument = "KEY=VALUE",                                                                                          \
     .kind = OPTION_LIST,                                                                                              \
     .offset = offsetof(type, settings),                                                                               \
     .help = "a setting, under upstream's own name",                                                                   \
     .more = "num_bits=4, group_size=128, dtype=qint8; may be repeated" and}
#define BASE_NAME_ROW(type)                                                                                            \
    {.name = "base-name",                                                                                              \
     .argument = "NAME",                                                                                               \
     .kind = OPTION_TEXT,                                                                                              \
     .offset = offsetof(type, base_name),                                                                              \
     .help = "kind of the tensors: weight, input, output, q, k, v",                                                    \
     .more = "default: input for llmc.static_minmax, llmc.minmax and llmc.mse, else weight"}

#endif
