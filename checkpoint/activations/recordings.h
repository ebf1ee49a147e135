/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Recorded activations: files that hold the inputs and outputs of modules under names such as "<module>.input". */
#pragma once

#include <stdbool.h>

#include "files/tensor_files.h"
#include "qobs/qobs.h"

/* Zero-initialize it. */
struct recordings {
    struct tensor_files files;
    struct recording {
        const struct tensor_set *set;
        bool *used; /* for each tensor: recordings_batch has returned it */
    } *items;       /* one for each file, in the order of the options; a file is a batch of all its tensors */
    size_t count;
};

/* Opens a file or checkpoint and adds it as the next batch. A directory that is no checkpoint: each of its
 * *.safetensors, in the order of the bytes of their names. */
int recordings_add(struct recordings *recordings, const char *path, struct fail *f);

/* Finds the recording <module><suffix> and returns its first batch, which stands for all batches. NULL: there is
 * none. Fails if there is no memory. */
int recordings_find(const struct recordings *recordings, const char *module, size_t length, const char *suffix,
                    const struct tensor_ref **found, struct fail *f);

/* Returns the batch of a recording that file `index` holds, or NULL. */
const struct tensor_ref *recordings_batch(const struct recordings *recordings, size_t index,
                                          const struct tensor_ref *found);

/* Returns the number of tensors that recordings_batch never returned. *first is the first of them. */
size_t recordings_unused(const struct recordings *recordings, const struct tensor_ref **first);

void recordings_free(struct recordings *recordings);

/* Makes the library's view of a tensor in a file. Fails for dtypes the library does not have. */
int tensor_of_ref(const struct tensor_ref *ref, qobs_tensor *tensor, struct fail *f);
