/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Schemes and options that quantize and calibrate share. */
#ifndef QOBS_TOOLS_SCHEMES_H
#define QOBS_TOOLS_SCHEMES_H

#include <stdbool.h>
#include <stddef.h>

#include "qobs/checkpoint.h"

/* Prints the end of --help: every scheme with a line about it. */
void print_schemes(void);

/* Says that no scheme is given, with the list of known ones. Returns an exit code. */
int print_missing_scheme(void);

/* The words of a command line that an error may call unknown. */
struct scheme_words {
    const char *command, *scheme;
    const char *const *presets, *const *settings; /* "[BASE=]NAME", "[BASE.]KEY=VALUE" */
    size_t preset_count, setting_count;
};

/* If the error calls a scheme, a preset or a setting unknown and a known one is near, prints an error that names that
 * one and returns true. */
bool print_suggestion(const struct scheme_words *words, const qobs_error *error);

#endif
