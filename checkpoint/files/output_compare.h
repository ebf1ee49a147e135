/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The steps of output_directory.h for a directory that is compared: its functions call these. Files that nothing would
 * write are not looked at. */
#pragma once

#include "files/output_directory.h"

/* Makes *d a directory that is there and that stays as it is. The functions of output_directory.h fail with FINDINGS
 * and the name of a file that is missing or another. output_directory_abort ends it. */
int output_compare_start(struct output_directory *d, const char *path, struct fail *f);

/* Opens a file and compares its size with `bytes`, unless that is 0; compares the size of an open file; compares bytes
 * at `offset`, of which output_compare_name says what they are. */
int output_compare_open(const struct output_directory *d, const char *relative, uint64_t bytes, int *fd,
                        struct fail *f);
int output_compare_size(const char *relative, int fd, uint64_t bytes, struct fail *f);
int output_compare_put(int fd, const void *data, size_t bytes, uint64_t offset, struct fail *f);
int output_compare_name(const char *what, int status, struct fail *f);
