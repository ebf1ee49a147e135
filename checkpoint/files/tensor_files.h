/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Opens the tensors that a command line names as FILE or FILE:TENSOR. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "files/fail.h"
#include "files/tensors.h"

/* The open files, each opened once. Zero-initialize it. For one thread at a time. */
struct tensor_files {
    struct tensor_files_entry {
        dev_t device;
        ino_t inode;
        struct tensor_set *set;
    } *entries;
    size_t count;
};

/* Returns in *set the tensors of `path`, as tensors_open reads them. A file that is open already, under any name, is
 * not opened again. *set belongs to *files; on failure it is NULL. */
int tensor_files_open(struct tensor_files *files, const char *path, const struct tensor_set **set, struct fail *f);

/* Resolves FILE or FILE:TENSOR. Without TENSOR the file must hold exactly one tensor. Both parts may contain colons:
 * the longest FILE that exists is used, and that may be all of `spec`. *ref belongs to *files; on failure it is
 * NULL. */
int tensors_spec(struct tensor_files *files, const char *spec, const struct tensor_ref **ref, struct fail *f);

/* Closes all files and zeroes *files. Does nothing if *files is zeroed. */
void tensor_files_close(struct tensor_files *files);
