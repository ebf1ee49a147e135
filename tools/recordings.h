/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Recorded activations: files that hold, under "<module>.input" and names like it, what flowed through a model. */
#ifndef QOBS_TOOLS_RECORDINGS_H
#define QOBS_TOOLS_RECORDINGS_H

#include <stdbool.h>

#include "tensor_files.h"

/* Zero it first. */
struct recordings {
    struct tensor_files files;
    struct recording {
        const struct tensor_set *set;
        bool *used;    /* each tensor that recordings_batch has handed out */
        size_t *marks; /* a number for each tensor, 0 at first */
    } *items;          /* in the order given: each is a batch of everything it holds */
    size_t count;
};

int recordings_add(struct recordings *recordings, const char *path, struct fail *f);

/* What was recorded as <module><suffix>: the first batch of it, which stands for them all, or NULL. Fails without memory. */
int recordings_find(const struct recordings *recordings, const char *module, size_t length, const char *suffix,
                    const struct tensor_ref **found, struct fail *f);

/* The same for "<module>.input", and where there is none, that of a module which has the same input because both run as one
 * (scheme.h). */
int recordings_find_input(const struct recordings *recordings, const char *module, size_t length,
                          const struct tensor_ref **found, struct fail *f);

/* The caller's number for what was found. */
size_t *recordings_mark(const struct recordings *recordings, const struct tensor_ref *found);

/* What file `index` holds of it, or NULL. */
const struct tensor_ref *recordings_batch(const struct recordings *recordings, size_t index, const struct tensor_ref *found);

/* How many tensors were never handed out; *first is the first of them. */
size_t recordings_unused(const struct recordings *recordings, const struct tensor_ref **first);

void recordings_free(struct recordings *recordings);

#endif
