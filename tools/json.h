/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* JSON out of files nobody vouches for. cJSON builds the tree; what it lets pass is refused before. */
#ifndef QOBS_TOOLS_JSON_H
#define QOBS_TOOLS_JSON_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "fail.h"

#define JSON_MAX_BYTES 100000000    /* what the safetensors format allows a header */
#define JSON_MAX_DEPTH 32
#define JSON_MAX_VALUES (1 << 22)   /* a value takes up to 40 times its text in memory */
#define JSON_MAX_INTEGER ((UINT64_C(1) << 53) - 1) /* numbers go through double */

/* Parses a text that must be one JSON object, with white space around it at most. `path` and `what` ("header") are for
 * messages. The caller frees *root with cJSON_Delete. Strings are valid UTF-8 and end at their '\0': an escaped U+0000 is
 * refused. A key can occur twice. */
int json_parse(cJSON **root, const char *path, const char *what, const void *text, size_t length, struct fail *f);

/* Stores item's value and returns 0 if it is a whole number from 0 to JSON_MAX_INTEGER, else -1. item may be NULL. */
int json_integer(const cJSON *item, uint64_t *value);

/* A number that reads back as the same double, which cJSON's own may not; null where it is not finite. */
cJSON *json_number(double value);

/* An item's value in a few words, for messages; written to `text` and returned. item may be NULL. */
struct json_words {
    char text[96];
};
const char *json_describe(const cJSON *item, struct json_words *words);

#endif
