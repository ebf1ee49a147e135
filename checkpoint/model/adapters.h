/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Adapters of fine-tuning that are not merged into the weights of their model: no runtime has layers of their names. */
#pragma once

#include <stdbool.h>

#include "files/source_tree.h"

/* Fails if a component of the tensor's name belongs to an adapter, with the way to merge it. */
int adapters_refuse_tensor(const char *name, struct fail *f);

/* Fails if a directory without weights of a model holds an adapter. */
int adapters_refuse_directory(const struct source_tree *tree, struct fail *f);

/* Returns true if the file holds an adapter, by its path in the directory of the model. */
bool adapters_are_in(const char *path);
