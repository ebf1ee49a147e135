/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Checks a text of JSON and walks through it without a tree: a header of 400,000 tensors takes json-c seconds. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "files/fail.h"

#define JSON_MAX_BYTES 100000000 /* limit of the safetensors format for a header */
#define JSON_MAX_DEPTH 32
#define JSON_MAX_VALUES (1 << 22)
#define JSON_MAX_CONTAINERS (1 << 20)              /* of a tree: json-c takes up to 900 bytes for an object */
#define JSON_MAX_INTEGER ((UINT64_C(1) << 53) - 1) /* what every reader of JSON stores exactly */

/* Rules for a text. PYTHON: NaN, Infinity and -Infinity are numbers. */
enum json_rules { JSON_STRICT, JSON_PYTHON };

/* Checks a text that must be one JSON object; only white space may surround it. `path` and `part` ("header") are used
 * in messages. *copy is the object with a final NUL, to be freed with free(). Its strings are valid UTF-8 and contain
 * no U+0000 and no half of a surrogate pair. A key can occur twice. */
int json_check(char **copy, const char *path, const char *part, const void *text, size_t length, enum json_rules rules,
               struct fail *f);

/* Returns true if a text is one value under strict rules. */
bool json_is_value(const char *text);

/* The text of a value or key, from its first character to its last. */
struct json_span {
    const char *text;
    size_t length;
};

/* Walks through an object or array of a checked text; `value` begins with its bracket. */
struct json_walk {
    const char *at;
};
struct json_walk json_enter(const char *value);

/* Finds the next member or element, which has no key. Returns false after the last one. */
bool json_step(struct json_walk *w, struct json_span *key, struct json_span *value);

/* Returns the number of members or elements. */
size_t json_span_count(struct json_span value);

/* Returns true if the text between the quotes is `text`. A key with escapes is none that is looked for. */
bool json_span_is(struct json_span key, const char *text);

/* Returns a copy of a string without quotes and escapes. NULL: no memory. */
char *json_span_string(struct json_span value);

/* Stores the value and returns 0 if it is a whole number from 0 to JSON_MAX_INTEGER, written in digits. Otherwise
 * returns -1. */
int json_span_integer(struct json_span value, uint64_t *number);

/* Describes a value in a few words, for messages. Writes the text to `words` and returns it. */
struct json_words {
    char text[96];
};
const char *json_span_describe(struct json_span value, struct json_words *words);
