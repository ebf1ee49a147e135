/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Structures of a caller whose header may be older or newer than this library. They only ever grow, beyond what was their size
 * (not into what pads them, which is not 0). An older one must be as large as the first there was; what it lacks counts as 0. A
 * newer one may not ask for what this library does not know: behind what it knows there must be 0. */
#ifndef QOBS_STRUCT_SIZE_H
#define QOBS_STRUCT_SIZE_H

#include "base/error.h"

/* More than that is no newer structure but an uninitialised one, whose end may not be there to be looked at. */
enum { MOST_ADDED = 256 };

/* For structures the caller fills. `given` begins with its struct_size; `least` and `known` are the sizes of the first version of
 * the structure and of this one. */
static inline int struct_size_check(const char *name, const void *given, size_t quant_min, size_t known, qobs_error *error)
{
    const unsigned char *bytes = given;
    const size_t size = *(const size_t *)given;
    if (size < quant_min || size > known + MOST_ADDED)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: struct_size is %zu, expected %zu", name, size, known);
    for (size_t i = known; i < size; i++)
        if (bytes[i] != 0)
            return qobs_fail(error, QOBS_ERROR_UNSUPPORTED,
                             "%s: has a field at byte %zu that this library, version " QOBS_VERSION
                             ", does not know; it must be 0",
                             name, i);
    return QOBS_OK;
}

#endif
