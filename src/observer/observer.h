/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* An observer: its stages, what it has accumulated, and what the caller has set. */
#pragma once

#include "config/resolve.h"
#include "histogram/histogram.h"
#include "optimal/optimal.h"
#include "search/search_record.h"

/* ---- State ------------------------------------------------------------------------------------------------------- */

/* Accumulated state, and how its parts are allocated. A state without ranges has seen no batch. */

/* Minimum and maximum of every qparam, in one block of memory. */
struct ranges {
    size_t size; /* bytes of both arrays */
    unsigned char *min, *max;
};

/* Dtype and shape of the ranges, known from the first batch. */
struct layout {
    qobs_dtype dtype; /* of the ranges */
    size_t qparams;
    struct shape range, scale;
    enum keying keying;
};

/* The range of whole tensors, in the dtype of the batches. */
struct global_range {
    qobs_dtype dtype; /* 0: there is none */
    _Alignas(8) unsigned char min[8];
    _Alignas(8) unsigned char max[8];
};

/* The error of every candidate of every qparam, summed over batches. */
struct error_sums {
    double *sum;
    size_t count;
};

struct state {
    struct layout layout;
    struct ranges ranges;          /* accumulated */
    struct ranges batch;           /* memory for those of the next batch */
    struct mode_count mode;        /* if the scales of the batches are counted */
    struct histogram histogram;    /* if there is one; the ranges are then those of its elements */
    struct error_sums sums;        /* of every candidate of every qparam, if they are summed over batches */
    struct search_record record;   /* of the last batch's search */
    struct optimal_result optimal; /* the same, if the scales are not those of the ranges */
};

static inline bool qobs_state_is_empty(const struct state *state) { return !state->ranges.min; }

int qobs_allocate_ranges(const struct runtime *runtime, struct ranges *ranges, qobs_dtype dtype, size_t n,
                         qobs_error *error);
int qobs_error_sums_reserve(const struct runtime *runtime, struct error_sums *sums, size_t count,
                            qobs_error *error); /* of 0 */
void qobs_release_ranges(const struct runtime *runtime, struct ranges *ranges);
void qobs_state_release(const struct runtime *runtime, struct state *state); /* all but the layout */

/* ---- Observer ---------------------------------------------------------------------------------------------------- */

struct qobs_observer {
    qobs_config config;
    struct stages stages;
    struct runtime runtime;
    const struct kernel_table *kernels;
    unsigned parts; /* that its stages have: a set of rows of state_parts.c */

    qobs_counts counts; /* the first of its parts, which qobs_parts_clear() clears */
    /* Before the first batch the layout is that of upstream's answer without data; the rest is empty. */
    struct state state;
    struct global_range global_range;
    struct importance importance; /* of the columns of the weight to come */
    struct gram gram;             /* of the same activations, if there is need */
    struct search_reference reference;
    bool fused; /* the global scale is that of this amax instead of the observer's own */
    double fused_amax;
};

/* An observer without data, in memory that is there. */
void qobs_observer_init(qobs_observer *observer, const qobs_config *config, const struct runtime *runtime);

/* Dtype and shape of the ranges of such a batch. */
struct layout qobs_layout_of(const struct stages *stages, const qobs_plan *plan);

/* The accumulated ranges as the formula reads them, without a global scale. */
struct range_view qobs_view_ranges(const qobs_observer *observer);

/* The ranges whose largest magnitude gives the global scale, unless that is fused. */
struct range_view qobs_view_global(const qobs_observer *observer);

/* The global range accumulates that of a batch. */
void qobs_accumulate_global(const struct accumulator *accumulator, struct global_range *global,
                            const struct global_range *batch);

/* A batch as memory for its parts is counted. */
struct part_size {
    const struct stages *stages;
    const struct layout *layout;
    int64_t columns; /* of the value */
    int copy;        /* 0 for the first of part->copies */
};

/* All parts of an observer (state_parts.h): their memory, which is allocated only to count it. */
unsigned qobs_parts_of(const struct stages *stages);
int qobs_parts_reserve(const struct runtime *runtime, const struct part_size *size, qobs_error *error);
void qobs_parts_release(qobs_observer *observer);
void qobs_parts_clear(qobs_observer *observer);

/* ---- One batch through the stages -------------------------------------------------------------------------------- */

/* Results the caller reads after the batch. Sizes that do not fit are an error before anything changes. */
struct request {
    void *min, *max;                    /* both, or NULL: not wanted */
    size_t range_size;                  /* bytes of min, and of max */
    const qobs_qparam_buffers *qparams; /* of this version; NULL: not wanted */
};

struct observed_batch {
    const qobs_tensor *value, *g_idx; /* g_idx may be NULL */
    const struct axes *axes;          /* dimensions to keep instead of the granularity's; NULL */
    bool forward;                     /* everything upstream's forward does; false: what its get_qparams does */
    const struct request *request;    /* NULL: nothing is read */
};

/* Accepts the batch and reads what is requested. An empty batch, and one that the preset ignores, changes nothing.
 * After a failure nothing has changed. */
int qobs_accept_batch(qobs_observer *observer, const struct observed_batch *batch, qobs_error *error);

/* Checks that ranges of that dtype go with the batches before. `first`: the batch starts a new state. */
int qobs_check_batch_dtype(const qobs_observer *observer, qobs_dtype dtype, bool first, qobs_error *error);

void qobs_add_tokens(qobs_observer *observer, const struct view *value);

/* ---- Scale, zero point and global scale, and the ranges that the rule finds in a histogram ------------------------
 */

/* The dtypes of scale and zero point for such a layout. `observed`: of ranges; else of upstream's answer without data.
 */
void qobs_qparam_dtypes(const qobs_observer *observer, const struct layout *layout, bool observed, qobs_dtype *scale,
                        qobs_dtype *zero_point);
struct shape qobs_scale_shape(const qobs_observer *observer);

/* Checks the sizes of scale and zero point of such a layout; one that is NULL is not wanted. */
int qobs_check_qparam_sizes(const qobs_observer *observer, const struct layout *layout, bool observed,
                            const qobs_qparam_buffers *out, qobs_error *error);
int qobs_check_size(size_t size, const char *name, size_t expected, qobs_error *error);

/* Writes scale and zero point. Either may be NULL; with both the result says whether they exist. */
int qobs_write_qparams(const qobs_observer *observer, void *scale, void *zero_point, qobs_error *error);

/* The global scale, and whether its amax is known. */
float qobs_compute_global_scale(const qobs_observer *observer);
bool qobs_global_scale_is_known(const qobs_observer *observer);

/* Finds the range of every qparam in its histogram, and computes scale and zero point for it. Any output may be NULL.
 */
int qobs_find_ranges(const qobs_observer *observer, float *min, float *max, void *scale, void *zero_point,
                     qobs_error *error);

/* Copies a caller's structure, with the members it lacks as 0. */
int qobs_qparam_buffers_read(qobs_qparam_buffers *out, const qobs_qparam_buffers *given, qobs_error *error);

/* Upstream's percentile of an empty histogram is a list of one range. */
bool qobs_found_is_list(const qobs_observer *observer);

/* ---- Searches and weights of errors as steps of observing -------------------------------------------------------- */

/* Replaces the range of the plan's tensor by the one with the smallest error, if each candidate has the global scale of
 * its own range. */
int qobs_search_global(const qobs_observer *observer, const qobs_plan *plan, struct global_range *global,
                       qobs_error *error);

struct search_workspace {
    double *doubles;
    size_t size; /* bytes */
};

/* The state as the members of struct state_range take it. Those that return a result only read it. */
struct search_state qobs_search_state(const qobs_observer *observer);

/* The Gram of activations as a part of an observer: of the groups, or of the blocks that hessian_block_size says. */

/* True if the observer needs the Gram of activations besides their mean squares. */
bool qobs_needs_gram(const struct stages *stages);

/* A gram for activations of that many columns, without sums. */
struct gram qobs_gram_for(const struct stages *stages, int64_t columns);

/* Adds activations to the importance, and to the Gram if there is need. After a failure nothing has changed. */
int qobs_observe_activations(qobs_observer *o, const struct view *v, qobs_error *error);

static inline bool qobs_is_optimal(const qobs_observer *observer) { return observer->stages.range.ops->optimal; }

/* True if scales have been searched under another global scale than the present one: the weight must be observed
 * again. */
bool qobs_optimal_is_stale(const qobs_observer *observer);
