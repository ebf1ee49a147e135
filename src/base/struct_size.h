/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Structures that a caller fills. Its header may be older or newer than this library.
 *
 * Structures only grow, behind their end and never into their padding, which is not 0. An older one is at least as
 * large as the first version; the fields it lacks count as 0. In a newer one everything that this library does not know
 * must be 0. */
#pragma once

#include "base/error.h"

/* A larger structure is not newer but uninitialised, and its end may not be readable. */
enum { MAX_ADDED = 256 };

/* A structure begins with its struct_size. `first` and `known` are the sizes of its first version and of this one. */
static inline int struct_size_check(const char *name, const void *structure, size_t first, size_t known,
                                    qobs_error *error)
{
    const unsigned char *bytes = structure;
    const size_t size = *(const size_t *)structure;
    if (size < first || size > known + MAX_ADDED)
        return qobs_invalid(error, "%s: struct_size is %zu, expected %zu", name, size, known);
    for (size_t i = known; i < size; i++)
        if (bytes[i] != 0)
            return qobs_fail(error, QOBS_ERROR_UNSUPPORTED,
                             "%s: has a field at byte %zu that this library, version " QOBS_VERSION
                             ", does not know; it must be 0",
                             name, i);
    return QOBS_OK;
}
