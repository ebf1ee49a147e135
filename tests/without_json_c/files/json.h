/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The part of checkpoint/files/json.h that reads golden suites, where json-c is not packaged and files cannot be
 * mapped. A value is the place of its first character. The text is trusted: it is valid and its strings have no
 * escapes. */
#ifndef QOBS_TEST_WITHOUT_JSON_C_H
#define QOBS_TEST_WITHOUT_JSON_C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef char json_object;

struct json_item {
    const char *key;
    json_object *value;
    const json_object *parent;
    const char *next;
};
#define json_each(item, parent_value) for (struct json_item item = {.parent = (parent_value)}; json_next(&item);)

enum json_layout { JSON_LINE };

/* The text with a NUL in place of the second quote of each string. */
static inline int json_parse_value(json_object **value, const char *text)
{
    char *copy = strdup(text + strspn(text, " \n"));
    *value = copy;
    for (char *quote = copy; quote && (quote = strchr(quote, '"')) != NULL; quote++) {
        quote = strchr(quote + 1, '"');
        if (quote)
            *quote = 0;
    }
    return copy && !strchr(text, '\\') ? 0 : -1;
}

static inline void json_object_put(json_object *root) { free(root); }

static inline bool json_starts(const json_object *v, const char *characters)
{
    return v && *v && strchr(characters, *v);
}

/* Returns the text behind a value. */
static inline const char *json_after(const char *v)
{
    int depth = 0;
    do {
        depth += json_starts(v, "{[") - json_starts(v, "}]");
        v += *v == '"' ? strlen(v) + 1 : json_starts(v, "{}[],:") ? 1 : strcspn(v, "{}[],:\" \n");
        v += depth > 0 ? strspn(v, " \n") : 0;
    } while (depth > 0);
    return v;
}

static inline bool json_next(struct json_item *item)
{
    const char *at = item->next ? item->next : item->parent;
    if (!json_starts(item->parent, "{["))
        return false;
    at += item->next ? 0 : 1;
    at += strspn(at, " \n,");
    if (json_starts(at, "}]"))
        return false;
    if (*item->parent == '{') {
        item->key = at + 1;
        at = json_after(at);
        at += strspn(at, " \n:");
    }
    item->value = *at == 'n' ? NULL : (json_object *)at;
    item->next = json_after(at);
    return true;
}

static inline bool json_is_string(const json_object *v) { return json_starts(v, "\""); }
static inline bool json_is_number(const json_object *v) { return json_starts(v, "-0123456789"); }
static inline bool json_is_true(const json_object *v) { return json_starts(v, "t"); }
static inline double json_object_get_double(const json_object *v) { return v ? strtod(v, NULL) : 0; }
static inline int json_object_get_int(const json_object *v) { return (int)json_object_get_double(v); }
static inline const char *json_text(const json_object *v) { return json_is_string(v) ? v + 1 : NULL; }

static inline bool json_find(struct json_item *item, const char *key)
{
    while (json_next(item))
        if (item->key && strcmp(item->key, key) == 0)
            return true;
    return false;
}

static inline bool json_has(const json_object *object, const char *key)
{
    return json_find(&(struct json_item){.parent = object}, key);
}

static inline json_object *json_get(const json_object *object, const char *key)
{
    struct json_item item = {.parent = object};
    return json_find(&item, key) ? item.value : NULL;
}

static inline size_t json_count(const json_object *v)
{
    size_t n = 0;
    json_each(item, v) n++;
    return n;
}

static inline json_object *json_at(const json_object *array, size_t i)
{
    json_each(item, array) if (i-- == 0) return item.value;
    return NULL;
}

/* An array of strings is not among what is printed. */
static inline char *json_print(const json_object *v, enum json_layout layout)
{
    (void)layout;
    const char *text = v ? v : "null";
    const size_t length = v ? (size_t)(json_after(v) - v) : strlen(text);
    char *copy = malloc(length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = 0;
        if (json_is_string(v))
            copy[length - 1] = '"';
    }
    return copy;
}

#endif
