/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Structures of the public headers that can grow. A caller's header may be older or newer than this library.
 *
 * Structures only grow, behind their end and never into their padding, which is not 0. An older one is at least as
 * large as the first version.
 *  - An in structure is filled by the caller. Members that an older one lacks count as 0. In a newer one everything
 * that this library does not know must be 0.
 *  - An out structure is filled by the library, as far as its struct_size goes. */
#pragma once

#include <string.h>

#include "base/error.h"

/* Bytes of a structure whose last member is `member`: the size of the version that ended with it. */
#define SIZE_THROUGH(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))

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

/* Copies a caller's structure, the argument `name`, to `copy` of `known` bytes; members that it lacks become 0. */
static inline int args_read(const char *name, void *copy, const void *args, size_t first, size_t known,
                            qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require(args, name, error));
    const size_t size = *(const size_t *)args;
    if (size == known) { /* a copy of known size takes a caller of small tensors less time */
        memcpy(copy, args, known);
        return QOBS_OK;
    }
    RETURN_IF_FAILED(struct_size_check(name, args, first, known, error));
    memcpy(copy, args, size < known ? size : known);
    if (size < known)
        memset((unsigned char *)copy + size, 0, known - size);
    return QOBS_OK;
}

/* Reads a structure, or the `args` of a function, into `copy`, of type `type`. `member` is the last one of the type's
 * first version. */
#define STRUCTURE_READ(name, type, copy, structure, member, error)                                                     \
    args_read(name, copy, structure, SIZE_THROUGH(type, member), sizeof(type), error)
#define ARGS_READ(type, copy, args, member, error) STRUCTURE_READ("args", type, copy, args, member, error)

static inline int out_check(const char *name, const void *structure, size_t first, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require(structure, name, error));
    if (*(const size_t *)structure >= first)
        return QOBS_OK;
    return qobs_invalid(error, "%s: struct_size is %zu, allowed are %zu and more", name, *(const size_t *)structure,
                        first);
}

/* Fills an out structure from `from` of `known` bytes. struct_size stays. memset has cleared `from`, whose padding and
 * ends of arrays are copied, too: an initializer leaves in them what the stack had. */
static inline void out_copy(void *to, const void *from, size_t known)
{
    const size_t size = *(const size_t *)to, header = sizeof size;
    memcpy((unsigned char *)to + header, (const unsigned char *)from + header, (size < known ? size : known) - header);
}

/* Checks the size of a caller's array, and that it is there if it has bytes. */
static inline int array_check(const char *name, const void *array, size_t size, size_t expected, qobs_error *error)
{
    if (size != expected)
        return qobs_invalid(error, "%s: has %zu bytes, expected %zu", name, size, expected);
    return size > 0 ? qobs_require(array, name, error) : QOBS_OK;
}

/* qobs_counts in a caller's memory. An earlier version of the header has fewer fields. */

static inline int counts_check(const char *name, const qobs_counts *counts, qobs_error *error)
{
    return out_check(name, counts, SIZE_THROUGH(qobs_counts, inf), error);
}

static inline void counts_copy(const qobs_counts *from, qobs_counts *to) { out_copy(to, from, sizeof *from); }
