/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The options of a command. One table serves the parser, -h, --help and the completion of shells. */
#ifndef QOBS_TOOLS_OPTIONS_H
#define QOBS_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The effect of an option on the structure that options_parse fills. Two arguments that differ are refused, but in a
 * list. */
enum option_kind {
    OPTION_TEXT,    /* stores its argument in a const char * */
    OPTION_FLAG,    /* stores true in a bool */
    OPTION_LIST,    /* appends its argument to an array of const char *, whose number is at `count` */
    OPTION_INTEGER, /* stores its argument, from `min` to `max`, in an int64_t */
    OPTION_NUMBER,  /* stores its argument, a number above 0, in a double */
    OPTION_WORD,    /* stores in an enumeration which one of `words` its argument is, from 0 */
    OPTION_CALL     /* calls `call` */
};

struct option_row {
    const char *name;     /* without "--" */
    char letter;          /* of its short form; 0: none */
    const char *argument; /* name of its argument in the help; NULL: it has none */
    enum option_kind kind;
    size_t offset; /* of its member; OPTION_CALL: not used */
    size_t count;
    int64_t min, max;
    const char *words;                                /* separated by spaces */
    int (*call)(void *options, const char *argument); /* returns an exit code */
    const char *help;                                 /* a few words for -h and --help */
    const char *more;                                 /* the rest for --help; NULL: nothing */
};

/* Rows by kind. AT(member) is the offset of a member; each command defines it for its structure. */
#define ROW_OF(option, what, of_kind, member, short_help, rest)                                                        \
    .name = (option), .argument = (what), .kind = (of_kind), .offset = AT(member), .help = (short_help), .more = (rest)
#define TEXT_ROW(option, what, member, short_help, rest)                                                               \
    {                                                                                                                  \
        ROW_OF(option, what, OPTION_TEXT, member, short_help, rest)                                                    \
    }
#define FLAG_ROW(option, member, short_help, rest)                                                                     \
    {                                                                                                                  \
        ROW_OF(option, NULL, OPTION_FLAG, member, short_help, rest)                                                    \
    }
#define LIST_ROW(option, what, items, number, short_help, rest)                                                        \
    {                                                                                                                  \
        ROW_OF(option, what, OPTION_LIST, items, short_help, rest), .count = AT(number)                                \
    }
#define INTEGER_ROW(option, what, member, least, most, short_help, rest)                                               \
    {                                                                                                                  \
        ROW_OF(option, what, OPTION_INTEGER, member, short_help, rest), .min = (least), .max = (most)                  \
    }
#define NUMBER_ROW(option, what, member, short_help, rest)                                                             \
    {                                                                                                                  \
        ROW_OF(option, what, OPTION_NUMBER, member, short_help, rest)                                                  \
    }
#define WORD_ROW(option, member, known, short_help, rest)                                                              \
    {                                                                                                                  \
        ROW_OF(option, "NAME", OPTION_WORD, member, short_help, rest), .words = (known)                                \
    }
#define OUT_ROW(what, member, short_help, rest)                                                                        \
    {                                                                                                                  \
        ROW_OF("out", what, OPTION_TEXT, member, short_help, rest), .letter = 'o'                                      \
    }
/* The rows of a command. */
#define OPTION_ROWS(rows) .options = (rows), .option_count = sizeof(rows) / sizeof *(rows)

/* The options of every command begin with these. */
struct machine_options {
    const char *isa, *threads; /* NULL: not given, as in all texts */
};

struct threads;

/* A command. Texts may have any length: the help is wrapped. */
struct command {
    const char *name;
    /* Runs it with the options and `count` other arguments, under the chosen instruction set. Returns an exit code. */
    int (*run)(void *options, int count, char **arguments, struct threads *threads);
    size_t size;             /* of its options */
    const void *defaults;    /* of its options; NULL: zeroes */
    bool threaded;           /* it needs threads */
    const char *summary;     /* a few words for qobs --help */
    const char *usage;       /* lines after "qobs <name> " */
    const char *description; /* paragraphs for --help */
    const struct option_row *options;
    size_t option_count;      /* --help is not among them */
    const char *example;      /* one command line */
    void (*print_more)(void); /* prints the end of --help; NULL: nothing */
};

/* Parses the command line and runs the command, or prints its help. Returns an exit code. */
int command_run(const struct command *command, int argc, char **argv);

/* Prints `text` in lines of the terminal's width. `indent` spaces stand before each line but the first, which goes on
 * at column `column`. */
void print_wrapped(const char *text, int column, int indent);

/* Returns the width of the terminal at standard output, from 80 to 200; 80 if it is none. */
int output_columns(void);

#endif
