/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names of tensors and modules. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool ends_with(const char *text, const char *ending);

/* Returns the length of the module's name if `name` is "<module>.weight" or "weight"; else the length of the name. */
size_t module_length(const char *name);

/* Returns true if the module of `length` bytes is a linear layer by its name: no norm, embedding, router or output
 * layer. Weights say nothing about their class, so that names decide. */
bool is_linear_name(const char *module, size_t length);

/* Returns true if the module is a table of embeddings by its name, which no loader takes for a linear layer. */
bool is_embedding_name(const char *module, size_t length);
