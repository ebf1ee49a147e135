/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum, or the largest magnitude, of one batch for every qparam of a plan. */
#pragma once

#include "kernels/kernels.h"
#include "plan/loops.h"
#include "plan/plan.h"
#include "qobs/plan.h"

/* The treatment of NaN and infinite elements in a batch. */

enum nonfinite_mode {
    NONFINITE_REFUSE,
    NONFINITE_IGNORE,
    NONFINITE_PROPAGATE,
    NONFINITE_REFUSE_NAN /* histograms leave infinities out as upstream does, so PROPAGATE is the same for them */
};

/* Minimum and maximum of nested loops over memory: chooses the kernel for the innermost loops and walks the others. */

/* Merges everything the loops cover into min and max, which are indexed by qparam. The loops are normalised by input.
 * If min is NULL, the magnitudes are merged into max, which holds no sign. scratch: qobs_minmax_scratch bytes, where
 * `magnitudes` says that min is NULL; without scratch (NULL) some loops take longer. */
size_t qobs_minmax_scratch(const struct loops *loops, size_t element, bool magnitudes);
void qobs_minmax_loops(const struct loops *loops, const struct kernel_table *kernels, enum kernel_dtype dtype,
                       size_t element, void *scratch, unsigned char *min, unsigned char *max,
                       struct nonfinite_count *nonfinite);

/* Sets n ranges to what merging changes: infinity and -infinity, or, if min is NULL, magnitudes of 0. */
void qobs_fill_identities(enum kernel_dtype dtype, size_t element, size_t n, void *min, void *max);

/* Writes plan->qparams elements of the plan's dtype to min and to max; data is laid out as the plan's value. NaN and
 * infinities are counted. `mode` says if they fail with a message (min and max are then undefined), are left out, or
 * propagate as in torch.amin and torch.amax. A qparam without elements gets [0, 0]. Runs on the runtime's executor. */
typedef int reduce_fn(const struct runtime *runtime, const struct kernel_table *kernels, const qobs_plan *plan,
                      const unsigned char *data, enum nonfinite_mode mode, void *min, void *max,
                      struct nonfinite_count *nonfinite, qobs_error *error);
reduce_fn qobs_reduce_minmax;

/* Does the same with (-m, m) for the largest magnitude m; faster. The plan has no g_idx. */
reduce_fn qobs_reduce_absmax;

/* Fails with the counts and the position of the first NaN or, if `infinities`, of the first element that is not finite.
 */
int qobs_fail_nonfinite(const qobs_plan *plan, const unsigned char *data, const struct nonfinite_count *counted,
                        bool infinities, qobs_error *error);

/* Minimum and maximum of a batch whose columns g_idx spreads over groups. */

/* Merges the batch into min and max. The plan has an order (g_idx). Runs on the runtime's executor. */
int qobs_reduce_indexed(const struct runtime *runtime, const struct kernel_table *kernels, const qobs_plan *plan,
                        const unsigned char *data, unsigned char *min, unsigned char *max,
                        struct nonfinite_count *nonfinite, qobs_error *error);

/* Ranges of a few qparams at a time, so that their elements are still in a near cache when they are searched: memory is
 * read once. */

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
