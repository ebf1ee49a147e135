/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names of tensors and modules. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool ends_with(const char *text, const char *ending);

/* Returns true if a word is one of several that spaces separate. */
bool is_one_of(const char *word, const char *words);

/* Returns the length of the module's name if `name` is "<module>.weight" or "weight"; else the length of the name. */
size_t module_length(const char *name);
