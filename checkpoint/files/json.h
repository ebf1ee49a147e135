/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* JSON from untrusted files, as trees of json-c. NULL is the value null; numbers keep their text, objects the order of
 * their keys. */
#pragma once

#include <json-c/json_object.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "files/fail.h"

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

/* A text is checked and walked through without a tree (json_scan.c): json-c takes seconds for a header of 400,000
 * tensors. */
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

/* The same with words that last until the block ends. */
#define SPAN_WORDS(value) json_span_describe(value, &(struct json_words){{0}})

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Parses a text that must be one JSON object; only white space may surround it. NaN, Infinity and -Infinity are
 * numbers, as in Python. A key that occurs twice in an object is refused. `path` and `part` ("configuration") are used
 * in messages. The caller frees *root with json_object_put. Strings are valid UTF-8 and contain no U+0000. */
int json_parse(json_object **root, const char *path, const char *part, const void *text, size_t length, struct fail *f);

/* The same for a file, whose path is in messages. */
int json_read(json_object **root, const char *path, const char *part, struct fail *f);

/* Parses a text that is one value under strict rules, such as "[128,128]". Returns -1 if it is none, or there is no
 * memory. */
int json_parse_value(json_object **value, const char *text);

static inline bool json_is_object(const json_object *v) { return json_object_is_type(v, json_type_object); }
static inline bool json_is_array(const json_object *v) { return json_object_is_type(v, json_type_array); }
static inline bool json_is_string(const json_object *v) { return json_object_is_type(v, json_type_string); }
static inline bool json_is_bool(const json_object *v) { return json_object_is_type(v, json_type_boolean); }
static inline bool json_is_true(const json_object *v) { return json_is_bool(v) && json_object_get_boolean(v); }
bool json_is_number(const json_object *v);

/* A tree that is freed when the block of its variable ends. */
#define OWNED_JSON __attribute__((cleanup(json_release)))
void json_release(json_object **v);

/* Returns the member of an object. NULL: it is null or missing, or `object` is no object. */
json_object *json_get(const json_object *object, const char *key);
bool json_has(const json_object *object, const char *key);

/* Returns element i of an array; NULL if there is none. */
json_object *json_at(const json_object *array, size_t i);

/* Returns the number of members or elements, 0 for other values. */
size_t json_count(const json_object *v);

/* Returns the text of a string, which belongs to it; NULL for other values. */
const char *json_text(const json_object *v);

/* Returns the text of a member that is a string, else "". */
const char *json_text_of(const json_object *object, const char *key);

/* Returns a member that is a number; else `otherwise`. */
double json_number_of(const json_object *object, const char *key, double otherwise);

/* Stores the value and returns 0 if it is an integer from 0 to JSON_MAX_INTEGER, written as one. Otherwise returns
 * -1. */
int json_integer(const json_object *v, uint64_t *value);

/* A member of an object, or an element of an array, which has no key. */
struct json_item {
    const char *key;
    json_object *value;
    const json_object *parent;
    const void *entry;
    size_t next;
};

/* Runs the statement for each member or element; `item` is a struct json_item. Other values have none. */
#define json_each(item, parent_value) for (struct json_item item = {.parent = (parent_value)}; json_next(&item);)
bool json_next(struct json_item *item);

/* Returns the text of null, a boolean or a number. It is in the value or in `text`. Thread-safe for values that do not
 * change. */
struct json_scalar {
    char digits[24];
};
const char *json_scalar(const json_object *v, struct json_scalar *text);

/* Describes a value in a few words, for messages. Writes the text to `words` and returns it. */
const char *json_describe(const json_object *v, struct json_words *words);
#define JSON_WORDS(v) json_describe(v, &(struct json_words){{0}})

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* Creates a number with the shortest text that reads back as the same double. NaN and infinity become null (NULL). */
json_object *json_number(double value);

/* Creates a number that prints as a float of Python, such as 2.0 or 0.05. NULL: no memory. */
json_object *json_python_float(double value);

/* Creates a number that prints as `text`. NULL: no memory. */
json_object *json_exact_number(const char *text);

/* Add a member or an element. They take `value` over and return false if they cannot. A value that is NULL is null. */
bool json_put(json_object *object, const char *key, json_object *value);
bool json_append(json_object *array, json_object *value);

/* The same for values that are made here. No memory for the value is a failure, too. A text that is NULL is null. */
bool json_put_text(json_object *object, const char *key, const char *text);
bool json_put_count(json_object *object, const char *key, uint64_t count);
bool json_put_bool(json_object *object, const char *key, bool value);
bool json_append_text(json_object *array, const char *text);
json_object *json_put_object(json_object *object, const char *key);
json_object *json_put_array(json_object *object, const char *key);

/* Returns the object of a report, whose first member is report_version: another number if a member changes its meaning
 * or goes. NULL: no memory. */
json_object *json_report(void);

/* Returns a deep copy. NULL: no memory, or `v` is NULL. */
json_object *json_copy(const json_object *v);

/* INDENTED and SORTED print as Python's json.dumps(indent=2) does, with ASCII and \u escapes. SORTED: keys by code
 * points. LINE: on one line without spaces. */
enum json_style { JSON_INDENTED, JSON_SORTED, JSON_LINE };

/* Puts a string with its quotes into a text (text.h). ascii: with \u escapes for what is not ASCII. */
struct text_buffer;
void json_print_string(struct text_buffer *out, const char *text, bool ascii);

/* Returns the text without a final newline, to be freed with free(). NULL: no memory. */
char *json_print(const json_object *root, enum json_style style);

/* Adds an element as its text, a quarter of the memory of a tree, and frees the tree. style: that of the json_print to
 * come; depth: of the element in that tree. Nothing else may read it. Returns false if it cannot. */
bool json_append_printed(json_object *array, json_object *element, enum json_style style, int depth);
