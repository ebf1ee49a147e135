/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names of tensors and modules in tables. They come from files and go to terminals, so they are made printable. */
#ifndef QOBS_TOOLS_NAMES_H
#define QOBS_TOOLS_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "files/json.h"

enum { MAX_NAME = 100 };

/* A name that a line of a table begins with. */
struct label {
    const char *text;
    size_t length;
};

/* Writes the name to `text`, with "..." in its middle if it is longer than `width`, and returns it. */
const char *clean_name(struct label name, int width, char text[MAX_NAME + 1]);

/* Fits names into lines that have `others` more columns: if one is too long, drops what all begin with and says so. If
 * `all` layers go to a file, names have any width. Returns the width, at most MAX_NAME. */
int fit_names(struct label *names, size_t count, int others, bool all);

/* An entry of a report by how bad it is. */
struct ranked {
    const json_object *item;
    double badness;
    size_t index;
    struct label name; /* as the table has it */
};

/* Returns the entries of an array, the worst first, to be freed; `key` is that of their name. NULL: no memory. */
struct ranked *rank(const json_object *items, const char *key, double (*badness)(const json_object *item));

/* fit_names for the first `shown` entries. */
int fit_ranked(struct ranked *ranked, size_t shown, int others, bool all);

#endif
