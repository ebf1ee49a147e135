/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The regular files of a directory that is only read. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <stdbool.h>

#include "files/fail.h"

struct source_file {
    char *path; /* relative to the root, separated by '/' */
    uint64_t bytes;
};

struct source_tree {
    char *root;
    bool is_flat;              /* folders, and files that cannot be read, are no part of it */
    struct source_file *files; /* sorted by path with strcmp */
    size_t count;
};

/* Lists every file below `root`, or if it is flat those in it. Links are followed and taken as what they point to.
 * Names that begin with ".cache" or
 * ".gitattributes" at the root are left out, as model_free_ptq leaves them out. Fails for broken links, links in
 * circles, pipes, devices, sockets, and for files and directories that cannot be read. */
int source_tree_read(struct source_tree *tree, const char *root, bool is_flat, struct fail *f);

/* Adds a file at the end; a tree that is searched must be sorted. */
int source_tree_add(struct source_tree *tree, const char *path, uint64_t bytes, struct fail *f);

/* Returns the file with that path, or NULL. */
const struct source_file *source_tree_find(const struct source_tree *tree, const char *path);

void source_tree_free(struct source_tree *tree);
