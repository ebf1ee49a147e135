/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The output of qobs info. All functions return exit codes. */
#ifndef QOBS_TOOLS_INFO_H
#define QOBS_TOOLS_INFO_H

#include <stdbool.h>
#include <stddef.h>

/* Explains the settings of a preset. */
int info_preset(const char *name);

/* Says what a file or directory holds: a saved state, or tensors such as scales or a checkpoint. `all`: lists every
 * tensor. */
int info_file(const char *path, bool all);

/* Prints names alone, a line each: what may stand in a command line. words[0] is the kind. */
int info_list(const char *const *words, size_t count);

#endif
