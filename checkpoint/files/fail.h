/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* How functions fail: they return a status of qobs/qobs.h and leave one line of text for a person. */
#pragma once

#include <stdbool.h>

#include "qobs/qobs.h"

struct fail {
    char message[512]; /* no newline at the end; a longer one is cut by text_cut: names are long, the reason follows */
    bool system;       /* the system is at fault, not the input: no memory, no descriptors */
};

/* Replaces control characters and bytes that are not UTF-8 with '?'. Apply it to text from files before it goes to a
 * terminal. */
void make_printable(char *text);

/* Formats the message, makes it printable and returns INVALID_ARGUMENT. f may be NULL if the text is not needed. */
int fail(struct fail *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a failure of the system, which is OUT_OF_MEMORY, and for any status. */
int fail_system(struct fail *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
int report_failure(struct fail *f, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__ /* the analyzer sees one file at a time: tell it the return value */
#define fail(...) (fail(__VA_ARGS__), -1)
#define fail_system(...) (fail_system(__VA_ARGS__), -1)
#define report_failure(f, status, ...) (report_failure(f, status, __VA_ARGS__), (status) ? (status) : -1)
#endif

/* Returns the status of a failure of fail or fail_system, behind functions that return a pointer. */
static inline int failure_status(const struct fail *f)
{
    return f && f->system ? QOBS_ERROR_OUT_OF_MEMORY : QOBS_ERROR_INVALID_ARGUMENT;
}

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
