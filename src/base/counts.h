/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_counts in a caller's memory, which may be that of an earlier version of the header, with fewer fields. */
#ifndef QOBS_COUNTS_H
#define QOBS_COUNTS_H

#include <string.h>

#include "base/error.h"

/* The least struct_size there has been. */
#define LEAST_COUNTS offsetof(qobs_counts, tokens)

static inline int counts_check(const qobs_counts *counts, qobs_error *error)
{
    if (counts && counts->struct_size >= LEAST_COUNTS)
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "counts: struct_size is %zu, expected %zu",
                     counts ? counts->struct_size : 0, sizeof *counts);
}

static inline void counts_give(const qobs_counts *from, qobs_counts *to)
{
    const size_t size = to->struct_size;
    memcpy(to, from, size < sizeof *from ? size : sizeof *from);
    to->struct_size = size;
}

#endif
