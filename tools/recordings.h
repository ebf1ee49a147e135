/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Recorded activations: files that hold the inputs and outputs of modules under names such as "<module>.input". */
#ifndef QOBS_TOOLS_RECORDINGS_H
#define QOBS_TOOLS_RECORDINGS_H

#include <stdbool.h>

#include "files/tensor_files.h"

/* Zero-initialize it. */
struct recordings {
    struct tensor_files files;
    struct recording {
        const struct tensor_set *set;
        bool *used;          /* for each tensor: recordings_batch has returned it */
        size_t *user_values; /* for each tensor: a number of the caller, initially 0 */
    } *items;                /* one for each file, in the order of the options; a file is a batch of all its tensors */
    size_t count;
};

/* Opens a file and adds it as the next batch. */
int recordings_add(struct recordings *recordings, const char *path, struct fail *f);

/* Finds the recording <module><suffix> and returns its first batch, which stands for all batches. NULL: there is
 * none. Fails if there is no memory. */
int recordings_find(const struct recordings *recordings, const char *module, size_t length, const char *suffix,
                    const struct tensor_ref **found, struct fail *f);

/* The same for "<module>.input". If it was not recorded, finds the input of a module that is fused with this one
 * (scheme.h). */
int recordings_find_input(const struct recordings *recordings, const char *module, size_t length,
                          const struct tensor_ref **found, struct fail *f);

/* Returns the place of the caller's number for a recording. */
size_t *recordings_user_value(const struct recordings *recordings, const struct tensor_ref *found);

/* Returns the batch of a recording that file `index` holds, or NULL. */
const struct tensor_ref *recordings_batch(const struct recordings *recordings, size_t index,
                                          const struct tensor_ref *found);

/* Returns the number of tensors that recordings_batch never returned. *first is the first of them. */
size_t recordings_unused(const struct recordings *recordings, const struct tensor_ref **first);

void recordings_free(struct recordings *recordings);

#endif
