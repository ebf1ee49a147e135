/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* How functions above files/ fail: they return a status of qobs/qobs.h and leave a message. */
#pragma once

#include "files/fail.h"
#include "qobs/checkpoint.h"

/* Formats the message, makes it printable and returns `status`. */
int report_failure(struct fail *f, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Returns the status of a failure of files/. */
int failure_status(const struct fail *f);

/* Gives a caller of the library the status, with the message of a failure, and returns it. error may be NULL. */
int give_error(qobs_error *error, int status, const struct fail *f);

/* Fails if the arguments of a public function are NULL or have another size. */
int check_struct(const void *args, size_t struct_size, size_t needed, struct fail *f);
#define CHECK_STRUCT(args, f) check_struct(args, (args) ? (args)->struct_size : 0, sizeof *(args), f)

/* Fails if a member of the runtime, or the size of one of its structures, is wrong. */
int check_runtime(const qobs_runtime *runtime, struct fail *f);

/* Calls task(argument, i) for each i below count, on the threads of the executor, if there is one. */
void run_tasks(const qobs_runtime *runtime, void (*task)(void *argument, size_t i), void *argument, size_t count);

/* Returns the preset and the settings of a configuration, as qobs_config_parse reads them, to be freed. NULL: no
 * memory.
 */
char *config_text(const qobs_config *config);

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

#ifdef __clang_analyzer__ /* the analyzer sees one file at a time: tell it the return value */
#define report_failure(f, status, ...) (report_failure(f, status, __VA_ARGS__), (status) ? (status) : -1)
#endif

/* Wrong input, a failure of the system, no memory for `what`. */
#define INVALID(f, ...) report_failure(f, QOBS_ERROR_INVALID_ARGUMENT, __VA_ARGS__)
#define SYSTEM_FAILURE(f, ...) report_failure(f, QOBS_ERROR_SYSTEM, __VA_ARGS__)
#define NO_MEMORY(f, what) report_failure(f, QOBS_ERROR_OUT_OF_MEMORY, "no memory for %s", what)

#define RETURN_IF_NOT_OK(call)                                                                                         \
    do {                                                                                                               \
        const int status_of_call = (call);                                                                             \
        if (status_of_call != QOBS_OK)                                                                                 \
            return status_of_call;                                                                                     \
    } while (0)
