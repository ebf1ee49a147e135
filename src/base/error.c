/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/fpenv.h"

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
        for (char *c = error->message; *c; c++) /* values come from files: no control character reaches a terminal */
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                *c = '?';
    }
    return status;
}

int qobs_succeed(qobs_error *error)
{
    if (error) {
        error->status = QOBS_OK;
        error->message[0] = '\0';
    }
    return QOBS_OK;
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
