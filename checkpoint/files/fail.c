/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Formats failure messages and makes them safe for a terminal. */
#include "files/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"

void make_printable(char *text)
{
    unsigned char *p = (unsigned char *)text;
    for (size_t left = strlen(text), step; left > 0; p += step, left -= step) {
        step = utf8_sequence(p, left);
        if (step == 0 || p[0] < 0x20 || p[0] == 0x7f) {
            step = 1;
            p[0] = '?';
        } else if (p[0] == 0xc2 && p[1] < 0xa0) { /* U+0080 to U+009F are control characters, too */
            p[0] = p[1] = '?';
        }
    }
}

static int report(struct fail *f, int status, const char *format, va_list arguments)
{
    if (!f)
        return status;
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(f->message, sizeof f->message, format, arguments);
    OWNED char *whole = length >= (int)sizeof f->message ? malloc((size_t)length + 1) : NULL;
    if (whole && vsnprintf(whole, (size_t)length + 1, format, again) == length)
        text_cut(f->message, sizeof f->message, whole);
    va_end(again);
    make_printable(f->message);
    f->system = status == QOBS_ERROR_SYSTEM || status == QOBS_ERROR_OUT_OF_MEMORY;
    return status;
}

/* Defines a function that reports its arguments from `format` on. */
#define REPORTER(function, number, ...)                                                                                \
    int(function)(__VA_ARGS__, const char *format, ...)                                                                \
    {                                                                                                                  \
        va_list arguments;                                                                                             \
        va_start(arguments, format);                                                                                   \
        const int given = report(f, number, format, arguments);                                                        \
        va_end(arguments);                                                                                             \
        return given;                                                                                                  \
    }
REPORTER(fail, QOBS_ERROR_INVALID_ARGUMENT, struct fail *f)
REPORTER(fail_system, QOBS_ERROR_OUT_OF_MEMORY, struct fail *f)
REPORTER(report_failure, status, struct fail *f, int status)
