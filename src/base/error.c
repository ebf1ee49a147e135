/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fpenv.h"

/* Returns the length of a sequence of UTF-8, or 0 if it is cut or none. */
static size_t sequence(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    const size_t length = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < length; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

int(qobs_fail)(qobs_error *error, int status, const char *format, ...)
{
    if (error) {
        error->status = status;
        va_list arguments;
        va_start(arguments, format);
        const struct fp_text_mode mode = fp_enter_text();
        vsnprintf(error->message, sizeof error->message, format, arguments);
        fp_leave_text(mode);
        va_end(arguments);
        /* Values come from files and are cut: no control character reaches a terminal, and no part of a character. */
        for (char *c = error->message, *next; *c; c = next) {
            const size_t length = sequence(c);
            next = c + (length ? length : 1);
            if (length == 0 || (unsigned char)*c < 0x20 || *c == 0x7f)
                *c = '?';
        }
    }
    return status;
}

int qobs_check_global_scale(const float *global_scale, qobs_error *error)
{
    uint32_t bits = 1;
    if (global_scale)
        memcpy(&bits, global_scale, sizeof bits); /* a caller's mode may flush subnormal numbers to 0 */
    return bits - 1 < 0x7f800000 - 1 ? QOBS_OK
                                     : qobs_invalid(error, "global_scale: is %g, allowed are finite numbers above 0",
                                                    (double)*global_scale);
}

int qobs_succeed(qobs_error *error)
{
    if (error) {
        error->status = QOBS_OK;
        error->message[0] = '\0';
    }
    return QOBS_OK;
}

const char *qobs_word_text(const struct word *words, int value)
{
    for (; words->text; words++)
        if (words->value == value)
            return words->text;
    return NULL;
}

const char *qobs_status_string(int status)
{
    static const char *const text[] = {
        [QOBS_OK] = "success",
        [-QOBS_ERROR_INVALID_ARGUMENT] = "invalid argument",
        [-QOBS_ERROR_UNSUPPORTED] = "not supported on this machine or in this build",
        [-QOBS_ERROR_OUT_OF_MEMORY] = "out of memory",
        [-QOBS_ERROR_NONFINITE] = "NaN or infinity in an observed tensor",
        [-QOBS_ERROR_NO_DATA] = "nothing observed yet",
        [-QOBS_ERROR_NO_RESULT] = "the observed ranges leave no valid result",
        [-QOBS_ERROR_SYSTEM] = "a file cannot be read or written",
        [-QOBS_ERROR_CANCELLED] = "the caller stopped the call",
        [-QOBS_ERROR_FINDINGS] = "the audit finds faults in the output",
    };
    const bool known = status <= QOBS_OK && status >= QOBS_ERROR_FINDINGS;
    return known ? text[-status] : "unknown status";
}

const char *qobs_version(void) { return QOBS_VERSION; }

int qobs_version_number(void) { return QOBS_VERSION_NUMBER; }
