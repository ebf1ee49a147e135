/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Parses with getopt_long and prints help from the same table. */
#include "options.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "files/text.h"
#include "program.h"

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

int output_columns(void)
{
    enum { LEAST = 80, MOST = 200 };
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < LEAST)
        return LEAST;
    return size.ws_col < MOST ? size.ws_col : MOST;
}

void print_wrapped(const char *text, int column, int indent)
{
    enum { WIDTH = 80 }; /* longer lines are harder to read, in wide terminals, too */
    bool begins = true;  /* a line, so that no space is before the next word */
    while (*text) {
        const int length = (int)strcspn(text, " \n");
        if (!begins && column + 1 + length > WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (!begins) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        begins = (begins && length == 0) || *text == '\n';
        if (*text == '\n') {
            printf("\n%*s", indent, "");
            column = indent;
        }
        text += *text != '\0';
    }
    putchar('\n');
}

/* ---- Help -------------------------------------------------------------------------------------------------------- */

static const struct option_row help_row = {
    .name = "help", .letter = 'h', .kind = OPTION_FLAG, .help = "-h prints a summary, --help explains all"};

static void print_row(const struct option_row *row, bool all)
{
    enum { TEXT_COLUMN = 24 };
    char letter[8] = "", text[2048];
    if (row->letter)
        snprintf(letter, sizeof letter, "-%c, ", row->letter);
    const int column =
        printf("  %s--%s%s%s", letter, row->name, row->argument ? " " : "", row->argument ? row->argument : "");
    if (column + 2 > TEXT_COLUMN)
        printf("\n%*s", TEXT_COLUMN, "");
    else
        printf("%*s", TEXT_COLUMN - column, "");
    snprintf(text, sizeof text, "%s%s%s", row->help, all && row->more ? "; " : "", all && row->more ? row->more : "");
    print_wrapped(text, TEXT_COLUMN, TEXT_COLUMN);
}

static void print_help(const struct command *command, bool all)
{
    const char *usage = command->usage;
    for (const char *before = "usage:"; *usage; before = "      ") {
        const int length = (int)strcspn(usage, "\n");
        printf("%s qobs %s %.*s\n", before, command->name, length, usage);
        usage += length + (usage[length] != '\0');
    }
    putchar('\n');
    if (all) {
        print_wrapped(command->description, 0, 0);
        putchar('\n');
    }
    for (size_t i = 0; i < command->option_count; i++)
        print_row(&command->options[i], all);
    print_row(&help_row, all);
    if (all && command->print_more) {
        putchar('\n');
        command->print_more();
    }
    if (command->example)
        printf("\nexample: %s\n", command->example);
}

/* ---- Parser ------------------------------------------------------------------------------------------------------ */

/* Appends to an array that begins at `offset` of the options. */
static int add_to_list(const struct option_row *row, void *options, const char *text)
{
    char *const at = options;
    const char **added = list_add(at + row->offset, (size_t *)(void *)(at + row->count), sizeof *added);
    if (!added)
        return print_error(EXIT_SYSTEM, "no memory for the options");
    *added = text;
    return EXIT_OK;
}

static int store_integer(const struct option_row *row, int64_t *member, const char *text)
{
    char *end;
    const long long value = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < row->min || value > row->max)
        return print_error(EXIT_USAGE, "--%s: is '%s', allowed are %lld to %lld", row->name, text, (long long)row->min,
                           (long long)row->max);
    *member = value;
    return EXIT_OK;
}

static int store_number(const struct option_row *row, double *member, const char *text)
{
    char *end;
    *member = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*member) && *member > 0
               ? EXIT_OK
               : print_error(EXIT_USAGE, "--%s: is '%s', allowed are numbers above 0", row->name, text);
}

static int store_word(const struct option_row *row, int *member, const char *text)
{
    char allowed[128] = "";
    int i = 0;
    for (const char *at = row->words; *at; i++) {
        const int length = (int)strcspn(at, " ");
        if (strlen(text) == (size_t)length && memcmp(at, text, (size_t)length) == 0) {
            *member = i;
            return EXIT_OK;
        }
        const char *between = i == 0 ? "" : at[length] ? ", " : " and ";
        text_append(allowed, sizeof allowed, "%s%.*s", between, length, at);
        at += length + (at[length] == ' ');
    }
    return print_error(EXIT_USAGE, "--%s: is '%s', allowed are %s", row->name, text, allowed);
}

static int store(const struct command *command, const struct option_row *row, void *options, const char *argument)
{
    void *member = (char *)options + row->offset;
    if (row->argument && !*argument)
        return print_error(EXIT_USAGE, "%s: --%s is ''; %s is needed (see qobs %s -h)", command->name, row->name,
                           row->argument, command->name);
    switch (row->kind) {
    case OPTION_TEXT:
        *(const char **)member = argument;
        return EXIT_OK;
    case OPTION_FLAG:
        *(bool *)member = true;
        return EXIT_OK;
    case OPTION_LIST:
        return add_to_list(row, options, argument);
    case OPTION_INTEGER:
        return store_integer(row, member, argument);
    case OPTION_NUMBER:
        return store_number(row, member, argument);
    case OPTION_WORD:
        return store_word(row, member, argument);
    case OPTION_CALL:
        return row->call(options, argument);
    }
    return EXIT_USAGE;
}

static const char *row_name(const void *context, size_t index)
{
    const struct command *command = context;
    return index < command->option_count    ? command->options[index].name
           : index == command->option_count ? "help"
                                            : NULL;
}

enum { MAX_OPTIONS = 40, FIRST_CODE = 256, HELP_CODE = FIRST_CODE + MAX_OPTIONS };

/* Lists the long options that begin with `word`: "--set or --state". Returns how many there are. */
static size_t list_options(const struct command *command, const char *word, char *list, size_t size)
{
    size_t found = 0, last = 0;
    const char *name;
    list[0] = '\0';
    for (size_t i = 0; (name = row_name(command, i)) != NULL; i++)
        if (strncmp(name, word, strlen(word)) == 0) {
            found++;
            last = i;
        }
    for (size_t i = 0; found > 1 && (name = row_name(command, i)) != NULL; i++)
        if (strncmp(name, word, strlen(word)) == 0)
            text_append(list, size, "%s--%s", !*list ? "" : i == last ? " or " : ", ", name);
    return found;
}

/* Reports what getopt_long has refused. `missing`: the argument of an option is missing. */
static int refuse(const struct command *command, char **argv, bool missing)
{
    char word[128] = "", near[160] = "", list[512];
    const char *given = argv[optind - 1]; /* within a cluster of letters it is the word before */
    const bool is_long = optopt == 0 || optopt >= FIRST_CODE;
    if (missing)
        return print_error(EXIT_USAGE, "%s: %s needs an argument (see qobs %s -h)", command->name, given,
                           command->name);
    if (!is_long)
        return print_error(EXIT_USAGE, "%s: unknown option '-%c' (see qobs %s -h)", command->name, optopt,
                           command->name);
    snprintf(word, sizeof word, "%.*s", (int)strcspn(given + 2, "="), given + 2);
    if (optopt != 0) /* a known option */
        return print_error(EXIT_USAGE, "%s: --%s takes no argument, got '%s'", command->name, word, given);
    if (word[0] && list_options(command, word, list, sizeof list) > 1)
        return print_error(EXIT_USAGE, "%s: '--%s' is ambiguous; it may be %s", command->name, word, list);
    const char *name = suggest(word, row_name, command);
    if (name)
        snprintf(near, sizeof near, "; did you mean '--%s'?", name);
    return print_error(EXIT_USAGE, "%s: unknown option '--%s'%s (see qobs %s -h)", command->name, word, near,
                       command->name);
}

/* Refuses an option that is given twice with two arguments, unless it may be repeated. *before: the first one. */
static int check_once(const struct command *command, const struct option_row *row, const char **before,
                      const char *argument)
{
    if (row->kind == OPTION_LIST || !argument)
        return EXIT_OK;
    if (*before && strcmp(*before, argument) != 0)
        return print_error(EXIT_USAGE, "%s: --%s is given twice, as '%s' and as '%s'", command->name, row->name,
                           *before, argument);
    *before = argument;
    return EXIT_OK;
}

/* Sets optind as getopt does. -h and --help print the help and set *done. */
static int parse(const struct command *command, void *options, int argc, char **argv, bool *done)
{
    struct option table[MAX_OPTIONS + 2] = {0};
    char letters[2 * MAX_OPTIONS + 4] = ":h";
    const char *given[MAX_OPTIONS] = {0};
    size_t used = strlen(letters);
    for (size_t i = 0; i < command->option_count && i < MAX_OPTIONS; i++) {
        const struct option_row *row = &command->options[i];
        table[i] =
            (struct option){row->name, row->argument ? required_argument : no_argument, NULL, FIRST_CODE + (int)i};
        if (row->letter)
            letters[used++] = row->letter;
        if (row->letter && row->argument)
            letters[used++] = ':';
    }
    letters[used] = '\0';
    table[command->option_count] = (struct option){"help", no_argument, NULL, HELP_CODE};
    opterr = 0;
    *done = false;
    for (int c; (c = getopt_long(argc, argv, letters, table, NULL)) != -1;) {
        if (c == 'h' || c == HELP_CODE) {
            *done = true;
            print_help(command, c == HELP_CODE);
            return EXIT_OK;
        }
        if (c == '?' || c == ':')
            return refuse(command, argv, c == ':');
        size_t row = c >= FIRST_CODE ? (size_t)(c - FIRST_CODE) : 0;
        while (c < FIRST_CODE && command->options[row].letter != c)
            row++;
        int code = check_once(command, &command->options[row], &given[row], optarg);
        if (code == EXIT_OK)
            code = store(command, &command->options[row], options, optarg);
        if (code != EXIT_OK)
            return code;
    }
    return EXIT_OK;
}

/* ---- Run --------------------------------------------------------------------------------------------------------- */

int command_run(const struct command *command, int argc, char **argv)
{
    struct machine_options *options = calloc(1, command->size);
    struct threads threads = {0};
    qobs_error error;
    bool done;
    if (!options)
        return print_error(EXIT_SYSTEM, "no memory for the options");
    if (command->defaults)
        memcpy(options, command->defaults, command->size);
    int code = parse(command, options, argc, argv, &done);
    if (code == EXIT_OK && !done) {
        if (options->isa && qobs_isa_select(options->isa, &error) != QOBS_OK)
            code = print_error(exit_code_of(error.status), "--isa%s", error.message + strcspn(error.message, ":"));
        if (code == EXIT_OK && command->threaded)
            code = threads_start(&threads, options->threads);
        if (code == EXIT_OK)
            code = command->run(options, argc - optind, argv + optind, &threads);
        threads_stop(&threads);
    }
    for (size_t i = 0; i < command->option_count; i++)
        if (command->options[i].kind == OPTION_LIST)
            free_owned((char *)options + command->options[i].offset);
    free(options);
    return code;
}
