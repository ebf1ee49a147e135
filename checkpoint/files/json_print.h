/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prints JSON as Python's json.dumps(indent=2, sort_keys=True) does: keys by code points, ASCII with \u escapes. */
#pragma once

#include <cjson/cJSON.h>

/* Returns the text without a final newline, to be freed with free(). Numbers with a text (json_parse_exact,
 * json_exact_number) are printed as that text. NULL: no memory. */
char *json_print_sorted(const cJSON *root);

/* Creates a number that prints as `text`. NULL: no memory. */
cJSON *json_exact_number(const char *text);

/* Creates a number that prints as a float of Python, such as 2.0 or 0.05. NULL: no memory. */
cJSON *json_python_float(double value);
