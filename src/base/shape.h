/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Shapes of results and lists of axes. */
#pragma once

#include "qobs/qobs.h"

struct shape {
    int ndim; /* below 0: not set */
    int64_t extent[QOBS_MAX_NDIM];
};

struct axes {
    int count, axis[QOBS_MAX_NDIM];
};

static inline bool qobs_same_shape(const struct shape *a, const struct shape *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->extent[i] == b->extent[i];
    return same;
}
