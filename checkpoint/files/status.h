/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The public functions of the library share this: checks of arguments, errors, tasks. */
#pragma once

#include "files/fail.h"
#include "qobs/checkpoint.h"

/* Gives a caller of the library the status, with the message of a failure, and returns it. error may be NULL. */
int give_error(qobs_error *error, int status, const struct fail *f);

/* Fails if the arguments of a public function are NULL or have another size. */
int check_struct(const void *args, size_t struct_size, size_t needed, struct fail *f);
#define CHECK_STRUCT(args, f) check_struct(args, (args) ? (args)->struct_size : 0, sizeof *(args), f)

/* Fails if a member of the runtime, or the size of one of its structures, is wrong. */
int check_runtime(const qobs_runtime *runtime, struct fail *f);

/* Puts the name of an argument before the message of a failure that names a path or a value of it alone. Returns the
 * status. */
int argument_failure(const char *name, int status, struct fail *f);

/* Calls task(argument, i) for each i below count, on the threads of the executor, if there is one. */
void run_tasks(const qobs_runtime *runtime, void (*task)(void *argument, size_t i), void *argument, size_t count);

/* Returns the preset and the settings of a configuration, as qobs_config_parse reads them, to be freed. NULL: no
 * memory.
 */
char *config_text(const qobs_config *config);

/* Objects of the library that are destroyed when the blocks of their variables end. */
#define OWNED_CONFIG __attribute__((cleanup(config_release)))
#define OWNED_OBSERVER __attribute__((cleanup(observer_release)))
void config_release(qobs_config **config);
void observer_release(qobs_observer **observer);

/* Returns the time of a monotonic clock in seconds. */
double seconds_now(void);

/* A list of strings among the arguments of a public function. */
struct list_argument {
    const char *name;
    const char *const *items;
    size_t count;
};

/* Fails if a list, or an entry of one, is NULL. */
int check_lists(const struct list_argument *lists, size_t count, struct fail *f);
