/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Failure reports of the program's file functions: they return -1 and leave one line of text for a person. */
#pragma once

struct fail {
    char message[512]; /* no newline at the end; truncated if it is longer */
};

/* Replaces control characters and bytes that are not UTF-8 with '?'. Apply it to text from files before it goes to a
 * terminal. */
void make_printable(char *text);

/* Formats the message, makes it printable and returns -1. f may be NULL if the text is not needed. */
int fail(struct fail *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__ /* the analyzer sees one file at a time: tell it the return value */
#define fail(...) (fail(__VA_ARGS__), -1)
#endif
