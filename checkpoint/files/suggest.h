/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* "Did you mean". */
#pragma once

#include <stddef.h>

/* Returns a known name by index, constant while suggest runs; NULL after the last one. */
typedef const char *suggest_names(const void *context, size_t index);

/* Returns the name nearest to `word`, or NULL if none is near. Near is: the same but for case; the part after the last
 * '.' of a name ("minmax" for "llmc.minmax"); the beginning of a name, from three characters on; or at most a character
 * in five inserted, deleted, replaced or exchanged with its neighbour, and one more. */
const char *suggest(const char *word, suggest_names *names, const void *context);

/* The same in a list of words that NULL ends. */
const char *suggest_of(const char *word, const char *const *words);

/* Writes "; did you mean 'NAME'?" to `text`, or nothing if no word is near, and returns it. */
enum { HINT_SIZE = 128 };
const char *did_you_mean(char text[HINT_SIZE], const char *word, const char *const *words);
