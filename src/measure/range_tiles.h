/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Ranges of a few qparams at a time, so that their elements are still in a near cache when they are searched: memory is read once. */
#ifndef QOBS_SEARCH_SLABS_H
#define QOBS_SEARCH_SLABS_H

#include "measure/nonfinite.h"
#include "plan/plan.h"
#include "kernels/kernels.h"

/* A slab is some entries of the outermost dimension, along which qparams lie. */
struct slabs {
    const qobs_plan *plan;
    int axis;        /* -1: the plan has none, there is but one slab with everything */
    int64_t entries; /* of that axis */
    int64_t qparams; /* of one entry */
    int64_t most;    /* entries in a slab */
    int64_t bytes;   /* of an entry, where they lie one after the other and slabs are small; else 0 */
};

/* For work in at least that many pieces; each is of whole entries. */
void qobs_slabs_of(struct slabs *slabs, const qobs_plan *plan, int64_t pieces);

/* Writes the ranges of `count` entries from `first` on to where they belong in min and max. Returns whether all elements were
 * finite; they are left out with NONFINITE_IGNORE. */
bool qobs_slab_ranges(const struct slabs *slabs, const struct qobs_kernels *kernels, const unsigned char *data,
                      enum nonfinite_mode mode, int64_t first, int64_t count, unsigned char *min, unsigned char *max);

/* The memory one slab further on than `count` qparams from `first` on, as far as it is of qparams before `end`. Nothing where a slab is no
 * small whole piece of memory. */
struct qobs_prefetch qobs_slab_ahead(const struct slabs *slabs, const unsigned char *data, size_t first, size_t count, size_t end);

#endif
