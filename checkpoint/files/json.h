/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Parses JSON from untrusted files. cJSON builds the tree; this module first rejects the invalid input that cJSON
 * accepts. */
#pragma once

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "files/fail.h"

#define JSON_MAX_BYTES 100000000 /* limit of the safetensors format for a header */
#define JSON_MAX_DEPTH 32
#define JSON_MAX_VALUES (1 << 22)                  /* cJSON needs up to 40 times the size of a value's text */
#define JSON_MAX_INTEGER ((UINT64_C(1) << 53) - 1) /* cJSON stores numbers as double */

/* Parses a text that must be one JSON object; only white space may surround it. `path` and `part` ("header") are
 * used in messages. The caller frees *root with cJSON_Delete. Strings are valid UTF-8 and contain no U+0000. A key
 * can occur twice. */
int json_parse(cJSON **root, const char *path, const char *part, const void *text, size_t length, struct fail *f);

/* The same, but every number keeps its text (json_print.h), because integers may be beyond 2^53, and a key that occurs
 * twice in an object is refused. */
int json_parse_exact(cJSON **root, const char *path, const char *part, const void *text, size_t length, struct fail *f);

/* Stores the value of `item` and returns 0 if it is an integer from 0 to JSON_MAX_INTEGER. Otherwise returns -1.
 * item may be NULL. */
int json_integer(const cJSON *item, uint64_t *value);

/* Creates a number with enough digits to read back as the same double, which cJSON alone does not guarantee. NaN and
 * infinity become null. */
cJSON *json_number(double value);

/* Describes the value of `item` in a few words, for messages. Writes the text to `words` and returns it. item may be
 * NULL. */
struct json_words {
    char text[96];
};
const char *json_describe(const cJSON *item, struct json_words *words);
