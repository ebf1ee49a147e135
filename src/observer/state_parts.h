/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The parts of an observer: what it has accumulated and what the caller has set, a row each. A row says how much memory
 * a part takes, how it is released, saved and loaded, what a batch does to it, and how observers that have it are
 * merged. A new part is a member of struct state or of struct qobs_observer, and a row of the table in state_parts.c.
 */
#pragma once

#include "base/codec.h"
#include "observer/observer.h"

#define SWAP(type, a, b)                                                                                               \
    do {                                                                                                               \
        const type swapped = (a);                                                                                      \
        (a) = (b);                                                                                                     \
        (b) = swapped;                                                                                                 \
    } while (0)

/* The changes that a batch makes. Prepared changes wait here until nothing can fail any more. */
struct changes {
    const qobs_plan *plan;
    bool forward; /* see struct observed_batch */
    bool first;   /* the batch starts a new state */
    bool empty;   /* a histogram's batch without a finite element */
    struct nonfinite_count nonfinite;
    struct layout layout;
    struct state *state; /* that gets the batch: of `next` if the batch starts one, else the observer's */
    /* The parts that the batch makes anew, and its range of whole tensors. */
    qobs_observer *next;
    struct search_workspace workspace;
};

/* Several observers that become one, in the same way. */
struct merge {
    qobs_observer *o;
    const qobs_observer *const *others;
    size_t count;
    const qobs_observer *model; /* the first with ranges, whose layout all have; NULL: none has any */
    bool own;                   /* o has ranges */

    struct state *state; /* of `next` if o has no ranges, else o's */
    qobs_observer next;  /* the parts that are made anew */
};

/* Members that are NULL do not apply. */
struct part {
    bool (*exists)(const struct stages *stages); /* NULL: always */
    int copies;                                  /* that exist while a batch is accepted */
    /* Allocates a copy in an observer without it. */
    int (*reserve)(qobs_observer *observer, const struct part_size *size, qobs_error *error);
    void (*release_state)(const struct runtime *runtime, struct state *state); /* of a part of struct state */
    void (*release)(qobs_observer *observer);                                  /* of any other */
    /* Allocates what a batch adds to the part. The observer gains capacity and nothing else. */
    int (*prepare_batch)(const qobs_observer *observer, struct changes *changes, qobs_error *error);
    /* The observer takes the part that `next` has made, if any; `next` gets the old one. A state moves as a whole. */
    void (*adopt)(qobs_observer *observer, qobs_observer *next);
    /* After a batch has been accumulated. */
    void (*observe)(qobs_observer *observer, const struct changes *changes);
    int (*code)(struct codec *codec, qobs_observer *observer, qobs_error *error);
    /* The first checks and allocates and changes nothing that can be read; the second cannot fail. */
    int (*prepare_merge)(struct merge *merge, qobs_error *error);
    void (*merge)(struct merge *merge);
};

/* All parts that an observer of those stages has, in the order of the table. */
int qobs_parts_prepare_batch(const qobs_observer *observer, struct changes *changes, qobs_error *error);
void qobs_parts_adopt(qobs_observer *observer, qobs_observer *next, bool whole_state);
void qobs_parts_observe(qobs_observer *observer, const struct changes *changes);
int qobs_parts_prepare_merge(struct merge *merge, qobs_error *error);
void qobs_parts_merge(struct merge *merge);

/* ---- Searches as steps of accepting a batch ---------------------------------------------------------------------- */

/* Replaces the batch's ranges by those with the smallest error. A range of whole tensors in changes->next is searched
 * first, and the qparams are searched under the global scale that it will give; without one, under that of the range
 * accumulated so far, if there is one. */
int qobs_search_batch(const qobs_observer *observer, struct changes *changes, const qobs_tensor *value,
                      qobs_error *error);

/* Searches of the state (struct state_range) run after a batch has been accumulated, and their errors are those of that
 * batch. This checks a batch, whose ranges are measured, and allocates what its search needs, so that
 * qobs_search_accumulated cannot fail. */
int qobs_prepare_search(const qobs_observer *observer, struct changes *changes, qobs_error *error);
void qobs_search_workspace_release(const struct runtime *runtime, struct search_workspace *workspace);

/* Searches the batch; the result is the state's record. The observer's counts are those before the batch. */
void qobs_search_accumulated(qobs_observer *observer, const struct changes *changes, const unsigned char *data);

/* Finds the optimal scales of a batch, whose ranges are measured. */
int qobs_observe_optimal(const qobs_observer *observer, struct changes *changes, const unsigned char *data,
                         qobs_error *error);

/* ---- Saved states ------------------------------------------------------------------------------------------------ */

/* An observer as bytes, all numbers little-endian. In this order:
 *   - "qobs", u32 FORMAT, u64 size of everything, u32 length of the settings
 *   - the settings: the preset's name and "key=value", a line each
 *   - u64 batches, elements, NaN, infinities, tokens, tokens with an element other than 0
 *     since FORMAT 3: u64 ignored tensors
 *   - u32 dtype of the global range (0: none), its minimum, its maximum
 *   - u32 dtype of the ranges (0: none); if there are ranges:
 *     their shape and that of the scale (u32 ndim, u64 extents), u32 keying, minima, maxima
 *     u32 number of counted scales; for each u64 count, scales, zero points
 *   - if the preset searches: u64 columns and u64 tokens of importance, f64 sums; u64 qparams searched; if any:
 *     u32 steps, u32 stop step, u32 weighted, u32 fault, i32 best steps, f64 errors, f64 errors before
 *   - if errors are weighted by a Hessian: u64 tokens; if any: f64 sums of every block
 *   - if there are histograms: u64 bins; f32 first edge, last edge and step of each; f64 counts; numpy rule: f64 edges
 *   - if the preset takes a reference amax: u32 dtype, u64 elements, if any their shape and f32 amax
 *     u64 error weights, f32 weights; f64 error sums
 *   - u64 FNV-1a hash of all that */

/* The version, and the oldest one that is read; the largest size of the settings' text and the size of the hash, in
 * bytes. */
enum { FORMAT = 3, MIN_FORMAT = 2, MOST_TEXT = 4096, HASH = 8 };

/* Everything between the settings and the hash. Saving cannot fail and changes nothing; loading fills an observer that
 * has its configuration. */
int qobs_code_state(struct codec *codec, qobs_observer *observer, qobs_error *error);

/* Fails with what is wrong with the bytes. */
int qobs_damaged(qobs_error *error, const char *what);

/* Ranges and batches may have that dtype. */
bool qobs_is_observable(qobs_dtype dtype);
