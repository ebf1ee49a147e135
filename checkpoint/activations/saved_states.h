/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Directories of saved observers, each for the activations of one name such as "<module>.input". */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "files/fail.h"
#include "qobs/qobs.h"

/* Ends of the names of the saved sensitivity of rows, each of one half of the sequences. */
#define SENSITIVITY_A ".sensitivity_a"
#define SENSITIVITY_B ".sensitivity_b"

struct saved_state {
    char *name;       /* of the activations */
    char *path;       /* of the file */
    size_t directory; /* its position among the directories */
};

/* Zero-initialize it. */
struct saved_states {
    struct saved_state *items; /* sorted by name, then by directory */
    size_t count, directories;
};

/* Adds the states of a directory: those that its states.json names, {"states": {"NAME": "FILE"}}, or without one every
 * file NAME.qobs. Fails if a name is there twice or names a file outside the directory. */
int saved_states_add(struct saved_states *states, const char *directory, struct fail *f);

/* Returns the first state of <module><suffix>, NULL: none. *count is the number of directories that have it. */
const struct saved_state *saved_states_find(const struct saved_states *states, const char *module, size_t length,
                                            const char *suffix, size_t *count);

/* Loads `count` states of one name and merges them in order. Returns a status of qobs/qobs.h. One thread at a time. */
int saved_states_load(const struct saved_state *first, size_t count, qobs_observer **observer, struct fail *f);

/* The same without the tensors that they have observed: importance and Hessians alone, for a weight to come. */
int saved_importance_load(const struct saved_state *first, size_t count, qobs_observer **observer, struct fail *f);

/* The message of qobs_observer_load without the name of its argument: users know files, no buffers. */
const char *saved_state_fault(const qobs_error *error);

/* The failure of a merge of `path` into `what`, in words that need no list. */
int merge_failure(const char *path, const char *what, const qobs_error *error, struct fail *f);

/* Returns true if a state is of activations, not of importance or sensitivity. */
bool saved_states_of_activations(const struct saved_states *states);

void saved_states_free(struct saved_states *states);
