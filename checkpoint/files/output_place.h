/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Checks the place of an output directory. A part of output_directory.h. */
#pragma once

#include <stdbool.h>

#include "files/fail.h"

/* In the names of staging directories. */
#define OUTPUT_UNFINISHED ".unfinished-"

/* Returns the path without links and without "." and "..": of what is there, or of what will be. NULL: failure. */
char *output_place_resolve(const char *path, struct fail *f);

/* Returns true if the directory holds nothing but staging directories. *problem is an errno, 0 if it can be read. */
bool output_place_is_empty(const char *path, int *problem);

/* Makes the checks of output_directory_open. `resolved` is the resolved path. */
int output_place_check(const char *path, const char *resolved, const char *source, bool replace, struct fail *f);
