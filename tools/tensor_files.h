/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The tensors a command line names. */
#ifndef QOBS_TOOLS_TENSOR_FILES_H
#define QOBS_TOOLS_TENSOR_FILES_H

#include <stddef.h>
#include <sys/types.h>

#include "fail.h"
#include "tensors.h"

/* What a command line opens, each file once. Start with a zeroed one. Not for several threads at a time. */
struct tensor_files {
    struct tensor_files_entry {
        dev_t device;
        ino_t inode;
        struct tensor_set *set;
    } *entries;
    size_t count;
};

/* The set for `path` as tensors_open makes it, opened now or by an earlier call under whatever name. It belongs to *files.
 * On failure *set is NULL. */
int tensor_files_open(struct tensor_files *files, const char *path, const struct tensor_set **set, struct fail *f);

/* Resolves FILE or FILE:TENSOR. Without TENSOR the file must hold exactly one. Colons may occur in both: the longest FILE
 * that exists is taken, all of `spec` included. *ref belongs to *files; on failure it is NULL. */
int tensors_spec(struct tensor_files *files, const char *spec, const struct tensor_ref **ref, struct fail *f);

/* Closes all sets and zeroes. Harmless on a zeroed one. */
void tensor_files_close(struct tensor_files *files);

#endif
