/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Messages and status of a failure. */
#pragma once

#include "qobs/qobs.h"

/* Writes the message unless error is NULL, and returns `status`. */
#if defined(__MINGW32__)
#include <stdio.h>
__attribute__((format(__MINGW_PRINTF_FORMAT, 3, 4)))
#elif defined(__GNUC__) || defined(__clang__)
__attribute__((format(printf, 3, 4)))
#endif
int qobs_fail(qobs_error *error, int status, const char *format, ...);
#ifdef __clang_analyzer__ /* it analyses one file at a time and has to see the result here */
#define qobs_fail(error, status, ...) (qobs_fail(error, status, __VA_ARGS__), (status))
#endif

/* An argument that the message names is not allowed; or memory is short. */
#define qobs_invalid(error, ...) qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, __VA_ARGS__)
#define qobs_no_memory(error, ...) qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, __VA_ARGS__)

/* Returns the status of the call from the function around it, unless the call succeeds. */
#define RETURN_IF_FAILED(call)                                                                                         \
    do {                                                                                                               \
        const int status_of_call = (call);                                                                             \
        if (status_of_call != QOBS_OK)                                                                                 \
            return status_of_call;                                                                                     \
    } while (0)

/* Fails if the argument of that name is NULL. */
static inline int qobs_require(const void *argument, const char *name, qobs_error *error)
{
    return argument ? QOBS_OK : qobs_invalid(error, "%s: is NULL", name);
}

/* Fails if memory of that size was not there. */
static inline int qobs_require_memory(const void *memory, const char *name, size_t size, qobs_error *error)
{
    return memory ? QOBS_OK : qobs_no_memory(error, "%s: no memory for %zu bytes", name, size);
}

/* Fails if a global scale, NULL for none, is not finite or not above 0: scales are multiplied or divided by it. */
int qobs_check_global_scale(const float *global_scale, qobs_error *error);

/* Clears the message and returns QOBS_OK. */
int qobs_succeed(qobs_error *error);

/* The status of a public function: the message of an earlier failure goes, that of this one stays. */
static inline int qobs_finish(int status, qobs_error *error)
{
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

/* A value that settings and messages call by a word. The last of several has no text. */
struct word {
    const char *text;
    int value;
};

/* NULL: the value has no word. */
const char *qobs_word_text(const struct word *words, int value);
