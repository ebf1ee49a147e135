/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_counts in a caller's memory. An earlier version of the header has fewer fields. */
#pragma once

#include <string.h>

#include "base/error.h"

/* struct_size of the first version. */
#define MIN_COUNTS_SIZE offsetof(qobs_counts, tokens)

static inline int counts_check(const qobs_counts *counts, qobs_error *error)
{
    if (counts && counts->struct_size >= MIN_COUNTS_SIZE)
        return QOBS_OK;
    return qobs_invalid(error, "counts: struct_size is %zu, expected %zu", counts ? counts->struct_size : 0,
                        sizeof *counts);
}

static inline void counts_copy(const qobs_counts *from, qobs_counts *to)
{
    const size_t size = to->struct_size;
    memcpy(to, from, size < sizeof *from ? size : sizeof *from);
    to->struct_size = size;
}
