/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The program qobs: finds the command named by the first argument and runs it. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "files/output.h"
#include "files/text.h"
#include "outputs.h"
#include "program.h"
#include "qobs/checkpoint.h"

static const struct command *const commands[] = {&command_quantize,  &command_convert, &command_plan,  &command_audit,
                                                 &command_calibrate, &command_observe, &command_merge, &command_show,
                                                 &command_info,      &command_bench};

enum { COMMANDS = sizeof commands / sizeof *commands };

const struct command *command_at(size_t index) { return index < COMMANDS ? commands[index] : NULL; }

/* Names of commands, for suggest. */
static const char *command_name(const void *context, size_t index)
{
    (void)context;
    return index < COMMANDS ? commands[index]->name : NULL;
}

static void print_help(FILE *file)
{
    fputs("usage: qobs COMMAND [OPTION]... [FILE]...\n"
          "\n"
          "Quantizes models, and computes scales and zero points as the observers of\n"
          "llm-compressor, torch.ao and others do.\n"
          "\n",
          file);
    for (size_t i = 0; command_at(i); i++)
        fprintf(file, "  %-11s %s\n", command_at(i)->name, command_at(i)->summary);
    fputs("\n"
          "qobs COMMAND -h lists the options of a command, qobs COMMAND --help explains\n"
          "them, qobs -V prints the version, man qobs is the manual.\n"
          "\n"
          "Exit status: 0 success; 1 system failure (memory, disk); 2 wrong options or\n"
          "input; 3 the result is incomplete and a warning says what is missing, or audit\n"
          "has found something.\n"
          "\n"
          "example: qobs quantize MODEL_DIR --scheme W4A16 -o OUT_DIR\n",
          file);
}

/* Reports a failed write to standard output, which may show only when its buffer is flushed. */
static int finish(int code)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return code == EXIT_OK || code == EXIT_INCOMPLETE ? print_error(EXIT_SYSTEM, "standard output: cannot write")
                                                          : code;
    return code;
}

static int unknown_command(const char *name)
{
    const char *near = suggest(name, command_name, NULL);
    if (near)
        return print_error(EXIT_USAGE, "'%s' is no command; did you mean '%s'? (see qobs --help)", name, near);
    char known[256] = "";
    for (size_t i = 0; command_at(i); i++)
        text_append(known, sizeof known, "%s%s", i ? ", " : "", command_at(i)->name);
    return print_error(EXIT_USAGE, "'%s' is no command; known are %s (see qobs --help)", name, known);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    open_standard_descriptors();
    output_clean_on_signals();
    remember_inputs();
    qobs_error error;
    if (qobs_checkpoint_handle_bus_errors(&error) != QOBS_OK)
        return print_error(EXIT_SYSTEM, "%s", error.message);
    for (size_t i = 0; command_at(i); i++)
        if (strcmp(command_at(i)->name, name) == 0)
            return finish(command_run(command_at(i), argc - 1, argv + 1));
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return finish(EXIT_OK);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("qobs %s\n", qobs_version());
        return finish(EXIT_OK);
    }
    if (*name)
        return unknown_command(name);
    print_help(stderr);
    return EXIT_USAGE;
}
