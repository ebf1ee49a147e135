/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Formats messages of failures. */
#include "files/status.h"

#include <stdarg.h>
#include <stdio.h>

int(report_failure)(struct fail *f, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->message, sizeof f->message, format, args);
    va_end(args);
    make_printable(f->message);
    return status;
}
