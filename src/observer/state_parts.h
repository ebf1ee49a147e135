/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The parts of an observer: what it has accumulated and what the caller has set, a row each. A row says how much memory
 * a part takes, how it is released, saved and loaded, and how observers that have it are merged. A new part is a member
 * of struct state or of struct qobs_observer, and a row of the table in state_parts.c. */
#pragma once

#include "observer/observer.h"
#include "observer/saved_state.h"

/* A batch as memory for its parts is counted. */
struct part_size {
    const struct stages *stages;
    const struct layout *layout;
    int64_t columns; /* of the value */
    int copy;        /* 0 for the first of part->copies */
};

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
int qobs_parts_reserve(const struct runtime *runtime, const struct part_size *size, qobs_error *error);
int qobs_parts_prepare_merge(struct merge *merge, qobs_error *error);
void qobs_parts_merge(struct merge *merge);
