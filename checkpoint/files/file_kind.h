/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Says what a file is that is not what its reader expects: a pointer, a page of a server, another format. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "files/fail.h"

/* Returns what bytes are, to be read behind "is", with the way to the file that was meant; NULL: nothing is known of
 * them. */
const char *file_kind(const void *data, size_t size);

/* Fails with "PATH: is KIND" if the kind is known. Readers call it for bytes that they cannot read. */
int file_kind_refuse(const char *path, const void *data, size_t size, struct fail *f);

/* Returns the format of a file of weights that no safetensors file is, by the end of its name, and in *way how to get
 * safetensors; NULL: it is none. */
const char *file_kind_of_weights(const char *path, const char **way);

/* Fails with the reason why a file cannot be opened or listed; a link to nothing is named as one. `error`: of errno. */
int file_refuse_access(const char *path, const char *what, int error, struct fail *f);
