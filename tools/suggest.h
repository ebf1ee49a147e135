/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* "Did you mean": the known name that is nearest to a mistyped word. */
#ifndef QOBS_TOOLS_SUGGEST_H
#define QOBS_TOOLS_SUGGEST_H

#include <stddef.h>

/* Returns a known name by index, constant while suggest runs; NULL after the last one. */
typedef const char *suggest_names(const void *context, size_t index);

/* Returns the name nearest to `word`, or NULL if none is near. Near is: the same but for case; the part after the last
 * '.' of a name ("minmax" for "llmc.minmax"); the beginning of a name, from three characters on; or at most a character
 * in five inserted, deleted, replaced or exchanged with its neighbour, and one more. */
const char *suggest(const char *word, suggest_names *names, const void *context);

/* Names of presets, for suggest. context: not used. */
const char *suggest_preset(const void *context, size_t index);
/* Names of settings. context: a qobs_config. */
const char *suggest_key(const void *context, size_t index);

#endif
