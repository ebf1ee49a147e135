/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Inputs of the user that nothing uses: entries of `ignore` and `targets` that match no module, with what would match;
 * inputs and options. */
#pragma once

#include "engine/engine.h"
#include "quantize/selection.h"

/* A name that an entry can match, not terminated. */
struct module_name {
    const char *text;
    size_t length;
};

/* Zero-initialize it. */
struct module_names {
    struct module_name *items;
    size_t count;
    char **owned; /* texts that no tensor has */
    size_t owned_count;
};

/* Returns how many of the names an entry matches. A pattern that cannot be compiled matches none. */
size_t names_matched(const struct module_names *names, const char *entry);

/* Writes the reason why an entry matches none of the names, and what would match. target: it is one of `targets`, which
 * know classes, too. */
void unused_hint(char *text, size_t size, const struct module_names *names, const char *entry, bool target);

/* Names states, recordings and options that a call does not use, once its engine is open. */
struct unused_inputs {
    struct selection *selection; /* whose configuration gets the texts */
    const struct activation_scales *activations;
    const struct engine *engine;
    const struct input_paths *paths;
    qobs_fill_experts fill_experts;
};
int inputs_name_unused(const struct unused_inputs *u, struct fail *f);
