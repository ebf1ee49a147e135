/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Schemes and options that quantize and calibrate share. */
#ifndef QOBS_TOOLS_SCHEMES_H
#define QOBS_TOOLS_SCHEMES_H

#include <stdbool.h>
#include <stddef.h>

#include "qobs/checkpoint.h"

/* Names of schemes, for suggest. context: not used. */
const char *scheme_name(const void *context, size_t index);

/* Prints the end of --help: every scheme with a line about it. */
void print_schemes(void);

/* Says that no scheme is given, with the list of known ones. Returns an exit code. */
int print_missing_scheme(void);

/* True if the library has a preset of this name. */
bool is_preset(const char *name);

/* Parses the argument of --fill-experts. Returns an exit code. */
int fill_experts_option(const char *name, qobs_fill_experts *fill);

#endif
