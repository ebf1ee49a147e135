/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_counts in a caller's memory. An earlier version of the header has fewer fields. */
#pragma once

#include "base/struct_size.h"

static inline int counts_check(const qobs_counts *counts, qobs_error *error)
{
    return out_check("counts", counts, SIZE_THROUGH(qobs_counts, inf), error);
}

static inline void counts_copy(const qobs_counts *from, qobs_counts *to) { out_copy(to, from, sizeof *from); }
