/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names of tensors and modules. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool ends_with(const char *text, const char *ending);

/* Returns the length of the module's name if `name` is "<module>.weight" or "weight"; else the length of the name. */
size_t module_length(const char *name);
