/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The program qobs: finds the command named by the first argument and runs it. */
#include <stdio.h>
#include <string.h>

#include "files/output.h"
#include "program.h"

static const char help[] =
    "usage: qobs COMMAND [OPTION]... [FILE]...\n"
    "\n"
    "Quantizes models, and computes scales and zero points as the observers of llm-compressor and torch.ao do.\n"
    "\n"
    "  quantize    a quantized copy of a model, which vLLM loads\n"
    "  audit       what is wrong with a quantized model, and the error of its layers\n"
    "  calibrate   scales and zero points for the weights of a checkpoint\n"
    "  observe     run one observer over tensors and write every result\n"
    "  merge       merge the states of several runs of observe\n"
    "  show        the histogram of a tensor and the range an observer chooses in it\n"
    "  info        this CPU's instruction sets, the presets and their settings\n"
    "\n"
    "  qobs COMMAND --help explains a command, qobs --version prints the version.\n"
    "\n"
    "Exit status: 0 success, 1 system failure (memory, disk), 2 wrong options or input, 3 audit has found something.\n";

static const struct {
    const char *name;
    int (*run)(int, char **);
} commands[] = {
    {"audit", command_audit},     {"calibrate", command_calibrate}, {"info", command_info}, {"merge", command_merge},
    {"observe", command_observe}, {"quantize", command_quantize},   {"show", command_show},
};

/* Reports a failed write to standard output, which may show only when its buffer is flushed. */
static int finish(int code)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return code == EXIT_OK ? print_error(EXIT_SYSTEM, "standard output: cannot write") : code;
    return code;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    open_standard_descriptors();
    output_clean_on_signals();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return finish(commands[i].run(argc - 1, argv + 1));
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        fputs(help, stdout);
        return finish(EXIT_OK);
    }
    if (strcmp(name, "--version") == 0) {
        printf("qobs %s\n", qobs_version());
        return finish(EXIT_OK);
    }
    if (*name)
        return print_error(
            EXIT_USAGE,
            "'%s' is no command; known are quantize, audit, calibrate, observe, merge, show, info (see qobs --help)",
            name);
    fputs(help, stderr);
    return EXIT_USAGE;
}
