/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The options of a command. One table serves the parser, -h, --help and the completion of shells. */
#ifndef QOBS_TOOLS_OPTIONS_H
#define QOBS_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* The effect of an option on the structure that options_parse fills. */
enum option_kind {
    OPTION_TEXT, /* stores its argument in a const char *; refused if two differ */
    OPTION_FLAG, /* stores true in a bool */
    OPTION_LIST, /* appends its argument to a struct option_list */
    OPTION_CALL  /* calls `call` */
};

struct option_row {
    const char *name;     /* without "--" */
    char letter;          /* of its short form; 0: none */
    const char *argument; /* name of its argument in the help; NULL: it has none */
    enum option_kind kind;
    size_t offset;                                    /* of its member; OPTION_CALL: not used */
    int (*call)(void *options, const char *argument); /* returns an exit code; OPTION_CALL only */
    const char *help;                                 /* a few words for -h and --help */
    const char *more;                                 /* the rest for --help; NULL: nothing */
};

/* A command. Texts may have any length: the help is wrapped. */
struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;     /* a few words for qobs --help */
    const char *usage;       /* lines after "qobs <name> " */
    const char *description; /* paragraphs for --help */
    const struct option_row *options;
    size_t option_count;      /* --help is not among them */
    const char *example;      /* one command line */
    void (*print_more)(void); /* prints the end of --help; NULL: nothing */
};

struct option_list {
    const char **items;
    size_t count;
};

/* Parses the command line into `options` and sets optind as getopt does. -h and --help print the help and set *done.
 * Returns an exit code. */
int options_parse(const struct command *command, void *options, int argc, char **argv, bool *done);

/* Appends `text`. Returns an exit code. The caller frees list->items. */
int option_list_add(struct option_list *list, const char *text);

/* Parses the integer argument of an option. Returns an exit code. */
int option_integer(const char *option, const char *text, long long min, long long max, long long *value);

/* Prints `text` in lines of the terminal's width. `indent` spaces stand before each line but the first, which goes on
 * at column `column`. */
void print_wrapped(const char *text, int column, int indent);

/* Returns the width of the terminal at standard output, from 80 to 200; 80 if it is none. */
int output_columns(void);

#endif
