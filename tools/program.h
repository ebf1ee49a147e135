/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What the commands share: exit codes, messages, threads, options. */
#ifndef QOBS_TOOLS_PROGRAM_H
#define QOBS_TOOLS_PROGRAM_H

#include <stdbool.h>

#include "qobs/qobs.h"
#include "tensors.h"

enum exit_code {
    EXIT_OK = 0,
    EXIT_TROUBLE = 1, /* the machine: no memory, a full disk */
    EXIT_WRONG = 2    /* what was asked for: options, settings, input */
};

/* Prints "qobs: <message>" to standard error; returns `code`. Where a file has changed while it was read the message is that. */
int complain(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__ /* sees one file at a time: what is returned is said here */
#define complain(code, ...) (complain(code, __VA_ARGS__), (code))
#endif

/* The exit code for a status of the library, with its message printed; `about` (or NULL) goes before it. */
int complain_status(const qobs_error *error, const char *about);
#ifdef __clang_analyzer__
#define complain_status(error, about) (complain_status(error, about), EXIT_TROUBLE)
#endif

/* Threads for the library: an executor over pthreadpool, or none where one thread was asked for. */
struct threads {
    void *pool;
    size_t count;
    qobs_executor executor;
    qobs_runtime runtime;
};

/* `given` is the argument of --threads, or NULL: as many as there are processors to run on. */
int threads_start(struct threads *threads, const char *given);
void threads_stop(struct threads *threads);

/* Runs task(argument, i) for each i below count on them. */
void threads_run(struct threads *threads, void (*task)(void *, size_t), void *argument, size_t count);

/* Has a file changed while it was read? To be asked before results are printed. Returns an exit code, complained about. */
int check_inputs(void);

/* Can `path` be written to at all? What exists must be a regular file. Returns an exit code, complained about. */
int check_output(const char *path);

/* --set KEY=VALUE */
int set_option(qobs_config *config, const char *assignment);

/* Is that setting's value this text? Does the preset know the setting at all? */
bool config_is(const qobs_config *config, const char *key, const char *value);
bool config_has(const qobs_config *config, const char *key);

/* A file's tensor as the library sees it. Refuses dtypes the library does not have. */
int tensor_of_ref(const struct tensor_ref *ref, qobs_tensor *tensor, struct fail *f);

/* `length` bytes of `start`, then `end`; to be freed. NULL: no memory. */
char *join(const char *start, size_t length, const char *end);

/* The commands: argv[0] is the command's name. Each returns an exit code. */
int command_calibrate(int argc, char **argv);
int command_info(int argc, char **argv);
int command_merge(int argc, char **argv);
int command_observe(int argc, char **argv);
int command_show(int argc, char **argv);

#endif
