/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Failure reports of the program's file functions: they return -1 and leave one line of text for a person. */
#pragma once

#include <stdbool.h>

struct fail {
    char message[512]; /* no newline at the end; truncated if it is longer */
    bool system;       /* the system is at fault, not the input: no memory, no descriptors */
};

/* Replaces control characters and bytes that are not UTF-8 with '?'. Apply it to text from files before it goes to a
 * terminal. */
void make_printable(char *text);

/* Formats the message, makes it printable and returns -1. f may be NULL if the text is not needed. */
int fail(struct fail *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a failure of the system. */
int fail_system(struct fail *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__ /* the analyzer sees one file at a time: tell it the return value */
#define fail(...) (fail(__VA_ARGS__), -1)
#define fail_system(...) (fail_system(__VA_ARGS__), -1)
#endif
