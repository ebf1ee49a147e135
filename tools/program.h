/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Parts that the commands share: exit codes, error messages, threads, options.
 *
 * A function of the program that returns an exit code has printed its error message before it returns anything but
 * EXIT_OK. */
#ifndef QOBS_TOOLS_PROGRAM_H
#define QOBS_TOOLS_PROGRAM_H

#include <stdbool.h>

#include "qobs/qobs.h"
#include "files/suggest.h"
#include "files/tensors.h"

enum exit_code {
    EXIT_OK = 0,
    EXIT_SYSTEM = 1,    /* system failure: no memory, disk full */
    EXIT_USAGE = 2,     /* wrong options, settings or input */
    EXIT_INCOMPLETE = 3 /* the result lacks something, as a warning says; audit: something is found */
};

/* Opens /dev/null as each of standard input, output and error that is closed: else a file of ours gets its number, and
 * messages go into it. The first thing of main. */
void open_standard_descriptors(void);

/* Prints a warning to standard error, safe for a terminal. */
void print_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints "qobs: <message>" to standard error and returns `code`. If an input file has changed while it was read,
 * prints that instead and returns EXIT_SYSTEM, because the other failure may follow from it. */
int print_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__ /* the analyzer sees one file at a time: tell it the return value */
#define print_error(code, ...) (print_error(code, __VA_ARGS__), (code))
#endif

/* Prints the message of a failure after `about` and returns the exit code for it. */
int print_failure(const struct fail *f, const char *about);
#ifdef __clang_analyzer__
#define print_failure(f, about) (print_failure(f, about), EXIT_SYSTEM)
#endif

/* Returns the exit code for a status of the library. */
int exit_code_of(int status);

/* Prints the message of a library error and returns the exit code for its status. `about`, if not NULL, precedes the
 * message. */
int print_status_error(const qobs_error *error, const char *about);
#ifdef __clang_analyzer__
#define print_status_error(error, about) (print_status_error(error, about), EXIT_SYSTEM)
#endif

/* Prints the message of a library error about a preset or a setting that is unknown. If a known one is near, the
 * message names that one and not all. `option` precedes the message. */
int print_preset_error(const qobs_error *error, const char *option, const char *preset);
int print_key_error(const qobs_error *error, const char *option, const qobs_config *config, const char *key);
#ifdef __clang_analyzer__
#define print_preset_error(error, option, preset) (print_preset_error(error, option, preset), EXIT_USAGE)
#define print_key_error(error, option, config, key) (print_key_error(error, option, config, key), EXIT_USAGE)
#endif

/* Threads for the library: an executor over pthreadpool, or no executor if `count` is 1. */
struct threads {
    void *pool; /* NULL before the first loop, and for one thread */
    bool started;
    size_t count;
    qobs_executor executor;
    qobs_runtime runtime;
};

/* Starts the threads. `argument` is that of --threads; NULL means one thread for each processor the process may use. */
int threads_start(struct threads *threads, const char *argument);
void threads_stop(struct threads *threads);

/* Fails if an input file has changed while it was read. Call it before results are printed. */
int check_inputs(void);

/* Writes the name that Linux has for the first processor in /proc/cpuinfo; "unknown" if it has none. */
void cpu_name(char *name, size_t size);

/* Fails if there is nothing at the path of a model; a name such as org/model gets a hint. */
int check_model(const char *path);

/* Applies the argument of --set: "KEY=VALUE". */
int set_option(qobs_config *config, const char *assignment);

/* Sets all of them. Refuses a setting that is given twice with two values. */
int set_options(qobs_config *config, const char *const *assignments, size_t count);

/* Refuses an option for a setting that --set gives another value. value NULL: it is not given. */
int check_apart(const char *const *assignments, size_t count, const char *key, const char *option, const char *value);

/* Warns of --table if nothing is printed. */
void warn_of_table(bool table, bool quiet);

/* config_is: true if setting `key` has exactly this value. config_has: true if the preset has setting `key`.
 * config_weighs_columns: true if observers accept importance. config_searches_scale: true if they search scales, not
 * ranges. */
bool config_is(const qobs_config *config, const char *key, const char *value);
bool config_has(const qobs_config *config, const char *key);
bool config_weighs_columns(const qobs_config *config);
bool config_searches_scale(const qobs_config *config);

/* ---- "Did you mean" ---------------------------------------------------------------------------------------------- */

/* Names of presets, for suggest. context: not used. */
const char *suggest_preset(const void *context, size_t index);
/* Names of settings. context: a qobs_config. */
const char *suggest_key(const void *context, size_t index);

#endif
