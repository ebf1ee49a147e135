/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What an observer holds, for the files that make and read it: observer.c (its life), observe.c (batches), result/, merge.c
 * (several observers), state/ (bytes) and statistic/keep.c. */
#ifndef QOBS_OBSERVER_H
#define QOBS_OBSERVER_H

#include "config/stages.h"
#include "formula/formula.h"
#include "plan/plan.h"
#include "kernels/kernels.h"
#include "range/search_record.h"
#include "measure/histogram.h"
#include "measure/mode.h"

/* The range of every qparam. llm-compressor keeps it in the dtype of the tensors, torch in f32. */
struct ranges {
    size_t size; /* bytes of both arrays together */
    unsigned char *min, *max;
};

/* What the ranges are, learnt from a batch. */
struct layout {
    qobs_dtype dtype; /* of the ranges */
    size_t qparams;
    struct shape range, scale;
    enum keying keying;
};

/* The range of whole tensors, which the 2025 forms keep apart from those of the qparams and make the global scale of. */
struct whole {
    qobs_dtype dtype; /* 0: there is none */
    _Alignas(8) unsigned char min[8];
    _Alignas(8) unsigned char max[8];
};

/* What is kept of the batches. */
struct kept {
    struct ranges state, batch; /* batch: room for the next one */
    struct mode_count mode_count;         /* where the statistic is a ballot */
    struct histogram histogram; /* where it is one; the ranges are then those of the elements */
    double *sums;               /* of errors, of every candidate of every qparam */
    size_t sums_count;
};

struct qobs_observer {
    qobs_config config;
    struct stages stages;
    struct runtime runtime;
    const struct qobs_kernels *kernels;
    qobs_counts counts;

    /* Before the first batch the layout is that of upstream's answer without data; the rest is empty. */
    struct layout layout;
    struct kept kept;
    struct whole whole;
    struct importance importance; /* of the columns of a weight to come */
    struct search_record searched; /* what the search of the last batch found */
    struct search_reference given;
    bool fused; /* the global scale is made for this magnitude instead of the observer's own */
    double fused_amax;
};

/* An observer that has seen nothing, in memory that is there. */
void qobs_observer_make(qobs_observer *observer, const qobs_config *config, const struct runtime *runtime);

/* What the ranges of such a batch are. */
struct layout qobs_layout_of(const qobs_config *config, const qobs_plan *plan);

/* Have batches left ranges? */
static inline bool qobs_has_ranges(const qobs_observer *o)
{
    return o->kept.state.min != NULL;
}

/* What the formula sees of the observer, without a global scale. */
struct range_view qobs_view_ranges(const qobs_observer *observer);

/* Of an observer with histograms: their masses in float32; the ranges found in them, and what the formula makes of those. Any
 * pointer but the first and the last may be NULL. */
void qobs_read_histogram(const qobs_observer *observer, float *out);
void qobs_read_bin_edges(const qobs_observer *observer, float *out); /* of one that grows by whole bins */
bool qobs_histogram_is_empty(const qobs_observer *observer);
int qobs_read_found(const qobs_observer *observer, float *min, float *max, void *scale, void *zero_point, qobs_error *error);

/* Does scale come with a global scale? */
bool qobs_has_global_scale(const qobs_observer *observer);

/* Is it made of the range of whole tensors? */
bool qobs_has_whole(const qobs_config *config);

/* Would scale and zero point of such a layout have these sizes in bytes? A NULL size is not wanted. */
int qobs_check_qparam_sizes(const qobs_observer *observer, const struct layout *layout, bool observed, const size_t *scale_size,
                            const size_t *zero_point_size, qobs_error *error);

/* Room for n ranges of dtype; released with qobs_release_ranges. */
int qobs_allocate_ranges(const struct runtime *runtime, struct ranges *ranges, qobs_dtype dtype, size_t n,
                         qobs_error *error);
void qobs_release_ranges(const struct runtime *runtime, struct ranges *ranges);
int qobs_allocate_sums(const struct runtime *runtime, struct kept *kept, size_t count, qobs_error *error); /* of 0 */
void qobs_release_kept(const struct runtime *runtime, struct kept *kept);

#endif
