/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The parts of an observer: what it has accumulated and what the caller has set, a row each. A row says how much memory
 * a part takes, how it is released, saved and loaded, and how observers that have it are merged. A new part is a member
 * of struct state or of struct qobs_observer, and a row of the table in state_parts.c. */
#pragma once

#include "base/codec.h"
#include "observer/observer.h"

/* Several observers that become one. What is prepared waits here until nothing can fail any more. */
struct merge {
    qobs_observer *o;
    const qobs_observer *const *others;
    size_t count;
    const qobs_observer *model; /* the first with ranges, whose layout all have; NULL: none has any */
    bool own;                   /* o has ranges */

    struct state fresh; /* if o has no ranges: the state it gets */
    struct state *state;
    struct histogram histogram;
    struct importance importance;
    struct gram gram;
    struct global_range global;
};

/* Members that are NULL do not apply. */
struct part {
    bool (*exists)(const struct stages *stages); /* NULL: always */
    int copies;                                  /* that exist while a batch is accepted */
    /* Allocates a copy in an observer without it. */
    int (*reserve)(qobs_observer *observer, const struct part_size *size, qobs_error *error);
    void (*release_state)(const struct runtime *runtime, struct state *state); /* of a part of struct state */
    void (*release)(qobs_observer *observer);                                  /* of any other */
    /* After a batch has been accumulated; that observer may lack the part. forward: see struct observed_batch. */
    void (*observe)(qobs_observer *observer, const qobs_plan *plan, bool forward);
    int (*code)(struct codec *codec, qobs_observer *observer, qobs_error *error);
    /* The first checks and allocates and changes nothing that can be read; the second cannot fail. */
    int (*prepare_merge)(struct merge *merge, qobs_error *error);
    void (*merge)(struct merge *merge);
};

/* All parts that an observer of those stages has, in the order of the table. */
int qobs_parts_prepare_merge(struct merge *merge, qobs_error *error);
void qobs_parts_merge(struct merge *merge);

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
