/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Ranges of a few qparams at a time, so that their elements are still in a near cache when they are searched: memory is
 * read once. */
#pragma once

#include "kernels/kernels.h"
#include "plan/plan.h"
#include "qobs/plan.h"
#include "reduce/nonfinite.h"

/* A tile is a few entries of the outermost axis, which is an axis of qparams. */
struct range_tiles {
    const qobs_plan *plan;
    int axis;        /* -1: the plan has no such axis; everything is one tile */
    int64_t entries; /* of that axis */
    int64_t qparams; /* of one entry */
    int64_t most;    /* entries of a tile */
    int64_t bytes;   /* of an entry if entries are contiguous and small; else 0 */
};

/* Tiles for work in at least `parts` parts of whole entries. */
void qobs_range_tiles_of(struct range_tiles *tiles, const qobs_plan *plan, int64_t parts);

/* Writes the ranges of `count` entries from `first` on to their places in min and max. Returns true if all elements
 * were finite; NONFINITE_IGNORE leaves out the others. Allocates nothing. */
bool qobs_range_tile_reduce(const struct range_tiles *tiles, const struct kernel_table *kernels,
                            const unsigned char *data, enum nonfinite_mode mode, int64_t first, int64_t count,
                            unsigned char *min, unsigned char *max);

/* The memory to prefetch beside `count` qparams from `first` on: that of the qparams one tile further on, as far as
 * they are before `end`. Nothing if entries are not contiguous and small. */
struct prefetch_ahead qobs_range_tile_prefetch(const struct range_tiles *tiles, const unsigned char *data, size_t first,
                                               size_t count, size_t end);
