/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The list of commands. */
#include "commands.h"

static const struct command *const commands[] = {&command_quantize, &command_audit, &command_calibrate,
                                                 &command_observe,  &command_merge, &command_show,
                                                 &command_info,     &command_bench};

enum { COMMANDS = sizeof commands / sizeof *commands };

const struct command *command_at(size_t index) { return index < COMMANDS ? commands[index] : NULL; }

const char *suggest_command(const void *context, size_t index)
{
    (void)context;
    return index < COMMANDS ? commands[index]->name : NULL;
}
