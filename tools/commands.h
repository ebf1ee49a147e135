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

/* Rows that several commands have. `type` is the structure that options_parse fills. */
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

#endif
