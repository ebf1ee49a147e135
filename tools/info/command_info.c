/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs info: prints the CPU, the instruction sets and the presets, or explains a preset or a file. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "commands.h"
#include "program.h"

struct info_options {
    struct machine_options machine;
    bool table, list;
};

#define AT(member) offsetof(struct info_options, member)
static const struct option_row rows[] = {
    ISA_ROW,
    FLAG_ROW("table", table, "list all tensors of FILE, not the first ten", NULL),
    FLAG_ROW("list", list, "print names alone, a line each",
             "of what follows: commands; options COMMAND; schemes [COMMAND]; presets; isas; settings [PRESET]; values "
             "PRESET SETTING"),
};

static void print_isas(bool limited)
{
    const char *active = qobs_isa_active();
    for (size_t i = 0; i < qobs_isa_count(); i++) {
        const bool is_active = strcmp(qobs_isa_name(i), active) == 0;
        const bool delegates = is_active && strcmp(active, "avx512") == 0;
        printf("%-14s %-8s %-22s %s\n", i == 0 ? "instructions" : "", qobs_isa_name(i), qobs_isa_summary(i),
               !qobs_isa_usable(i) ? "not usable by this CPU or system"
               : !is_active        ? "usable"
               : limited           ? "active: asked for with --isa"
               : delegates         ? "active: the fastest (calls avx2)"
                                   : "active: the fastest");
    }
}

static void print_presets(void)
{
    enum { SUMMARY_COLUMN = 40 };
    printf("%-14s qobs info NAME explains its settings\n", "presets");
    for (size_t i = 0; i < qobs_preset_count(); i++) {
        const int column = printf("  %-*s ", SUMMARY_COLUMN - 3, qobs_preset_name(i));
        if (column > SUMMARY_COLUMN)
            printf("\n%*s", SUMMARY_COLUMN, "");
        print_wrapped(qobs_preset_summary(i), SUMMARY_COLUMN, SUMMARY_COLUMN);
    }
}

static int print_all(bool limited)
{
    char name[128];
    cpu_name(name, sizeof name);
    printf("qobs           %s\nCPU            %s\n", qobs_version(), name);
    print_isas(limited);
    print_presets();
    return EXIT_OK;
}

static int explain(const char *word, bool all)
{
    struct stat status;
    for (size_t i = 0; i < qobs_preset_count(); i++)
        if (strcmp(qobs_preset_name(i), word) == 0)
            return info_preset(word);
    if (stat(word, &status) == 0)
        return info_file(word, all);
    char path[PATH_MAX];
    const char *colon = strrchr(word, ':');
    if (colon && snprintf(path, sizeof path, "%.*s", (int)(colon - word), word) < (int)sizeof path &&
        stat(path, &status) == 0)
        return info_tensor(path, colon + 1);
    const char *near = suggest(word, suggest_preset, NULL);
    if (near)
        return print_error(EXIT_USAGE, "info: '%s' is neither a preset nor a file; did you mean '%s'?", word, near);
    return print_error(EXIT_USAGE, "info: '%s' is neither a preset nor a file (qobs info lists the presets)", word);
}

static int run(void *options, int count, char **words, struct threads *threads)
{
    const struct info_options *o = options;
    (void)threads;
    if (o->list)
        return info_list((const char *const *)words, (size_t)count);
    if (count > 1)
        return print_error(EXIT_USAGE, "info: expected one preset or file, got %d (see qobs info -h)", count);
    if (count == 1 && o->machine.isa)
        return print_error(EXIT_USAGE, "info: --isa and '%s' exclude each other", words[0]);
    return count == 1 ? explain(words[0], o->table) : print_all(o->machine.isa != NULL);
}

const struct command command_info = {
    .name = "info",
    .run = run,
    .size = sizeof(struct info_options),
    .summary = "this CPU's instruction sets; the presets; a preset; a file",
    .usage = "[--isa NAME]\nPRESET\nFILE|DIR [--table]\nFILE:TENSOR\n--list KIND [NAME]...",
    .description =
        "Prints the CPU, the instruction sets, which one is active and why, and the presets.\n"
        "With the name of a preset: each of its settings with kind, limits, default and meaning.\n"
        "With a file: the observer in a saved state with its settings, counts and results; the tensors of scales with "
        "their smallest and largest number; dtypes, sizes and quantization_config of a checkpoint; keys, types and "
        "tensors of a GGUF file, its parts included.\n"
        "With FILE:TENSOR: its range and first numbers.",
    OPTION_ROWS(rows),
    .example = "qobs info llmc.memoryless_mse"};
