/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* How the program's functions report failure: they return -1 and leave one line of text for people. */
#ifndef QOBS_TOOLS_FAIL_H
#define QOBS_TOOLS_FAIL_H

struct fail {
    char message[512]; /* no newline at the end; cut where it does not fit */
};

/* Control characters and bytes that are not UTF-8 become '?': for what comes out of files and goes to a terminal. */
void make_printable(char *text);

/* Formats the message, makes it printable and returns -1. f may be NULL: then nobody wants the text. */
int fail(struct fail *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__ /* sees one file at a time: what is returned is said here */
#define fail(...) (fail(__VA_ARGS__), -1)
#endif

#endif
