/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* json-c builds the tree of a text that json_scan.c has checked. */
#include "files/json.h"

#include <json-c/json_tokener.h>
#include <json-c/linkhash.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Builds the tree of a checked text that ends with NUL. *null: it is null. */
static json_object *build(const char *text, bool *null)
{
    struct json_tokener *tokener = json_tokener_new_ex(JSON_MAX_DEPTH + 2);
    if (!tokener)
        return NULL;
    json_object *root = json_tokener_parse_ex(tokener, text, (int)strlen(text) + 1);
    *null = !root && json_tokener_get_error(tokener) == json_tokener_success;
    json_tokener_free(tokener);
    return root;
}

/* json-c keeps integers of 64 bits; larger ones and -0 become numbers with a text. */
static json_object *exact_integer(json_object *v, struct json_span span)
{
    char *text = json_object_is_type(v, json_type_int) && (span.length > 18 || *span.text == '-')
                     ? strndup(span.text, span.length)
                     : NULL;
    json_object *number = text && strcmp(text, json_object_get_string(v)) != 0 ? json_exact_number(text) : NULL;
    free(text);
    return number;
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names a key that occurs twice in the object. */
static int refuse_repeated(struct json_span object, const char *path, const char *part, struct fail *f)
{
    const size_t count = json_span_count(object);
    char **keys = calloc(count + 1, sizeof *keys);
    struct json_walk w = json_enter(object.text);
    struct json_span key, value;
    size_t n = 0;
    int result = -1;
    while (keys && json_step(&w, &key, &value) && (keys[n] = json_span_string(key)))
        n++;
    if (n < count)
        result = fail_system(f, "%s: out of memory for the %s", path, part);
    else
        qsort(keys, n, sizeof *keys, compare_strings);
    for (size_t i = 1; n == count && i < n; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            result = fail(f, "%s: the %s has the key '%.200s' twice", path, part, keys[i]);
    for (size_t i = 0; i < n; i++)
        free(keys[i]);
    free(keys);
    return result;
}

/* Compares a tree with its text: numbers get theirs where json-c has lost it, repeated keys are refused. */
static int make_exact(json_object *v, struct json_span span, const char *path, const char *part, struct fail *f)
{
    struct json_walk w = json_enter(span.text);
    struct json_span key, value;
    if (json_is_object(v) && json_count(v) != json_span_count(span))
        return refuse_repeated(span, path, part, f);
    for (struct json_item item = {.parent = v}; json_next(&item) && json_step(&w, &key, &value);) {
        json_object *number = exact_integer(item.value, value);
        if (number && json_is_object(v))
            json_object_object_add(v, item.key, number);
        else if (number)
            json_object_array_put_idx(v, item.next - 1, number);
        else if ((json_is_object(item.value) || json_is_array(item.value)) &&
                 make_exact(item.value, value, path, part, f) != 0)
            return -1;
    }
    return 0;
}

int json_parse(json_object **root, const char *path, const char *part, const void *text, size_t length, struct fail *f)
{
    char *copy;
    bool null;
    *root = NULL;
    if (json_check(&copy, path, part, text, length, JSON_PYTHON, f) != 0)
        return -1;
    *root = build(copy, &null);
    const int result = *root ? make_exact(*root, (struct json_span){copy, strlen(copy)}, path, part, f)
                             : fail_system(f, "%s: out of memory for the %s", path, part);
    free(copy);
    if (result == 0)
        return 0;
    json_object_put(*root);
    *root = NULL;
    return -1;
}

int json_parse_value(json_object **value, const char *text)
{
    bool null = false;
    *value = json_is_value(text) ? build(text, &null) : NULL;
    return *value || null ? 0 : -1;
}

bool json_is_number(const json_object *v)
{
    return json_object_is_type(v, json_type_int) || json_object_is_type(v, json_type_double);
}

json_object *json_get(const json_object *object, const char *key)
{
    json_object *value = NULL;
    if (json_is_object(object))
        json_object_object_get_ex(object, key, &value);
    return value;
}

bool json_has(const json_object *object, const char *key)
{
    return json_is_object(object) && json_object_object_get_ex(object, key, NULL);
}

json_object *json_at(const json_object *array, size_t i)
{
    return json_is_array(array) ? json_object_array_get_idx(array, i) : NULL;
}

size_t json_count(const json_object *v)
{
    return json_is_object(v)  ? (size_t)json_object_object_length(v)
           : json_is_array(v) ? json_object_array_length(v)
                              : 0;
}

/* json-c asks for trees that may change, because it keeps the text of other values in them. */
static json_object *writable(const json_object *v) { return (json_object *)(uintptr_t)v; }

const char *json_text(const json_object *v) { return json_is_string(v) ? json_object_get_string(writable(v)) : NULL; }

const char *json_text_of(const json_object *object, const char *key)
{
    const char *text = json_text(json_get(object, key));
    return text ? text : "";
}

int json_integer(const json_object *v, uint64_t *value)
{
    const int64_t number = json_object_is_type(v, json_type_int) ? json_object_get_int64(v) : -1;
    *value = (uint64_t)number;
    return number >= 0 && *value <= JSON_MAX_INTEGER ? 0 : -1;
}

bool json_next(struct json_item *item)
{
    if (json_is_object(item->parent)) {
        const struct lh_entry *entry = item->next++ == 0 ? json_object_get_object(item->parent)->head
                                                         : ((const struct lh_entry *)item->entry)->next;
        item->entry = entry;
        item->key = entry ? lh_entry_k(entry) : NULL;
        item->value = entry ? (json_object *)(uintptr_t)lh_entry_v(entry) : NULL;
        return entry != NULL;
    }
    if (item->next >= json_count(item->parent))
        return false;
    item->value = json_at(item->parent, item->next++);
    return true;
}

const char *json_describe(const json_object *v, struct json_words *words)
{
    const char *text = json_is_object(v)  ? "an object"
                       : json_is_array(v) ? "an array"
                       : v                ? json_object_get_string(writable(v))
                                          : "null";
    const char *quote = json_is_string(v) ? "\"" : "";
    snprintf(words->text, sizeof words->text, "%s%.80s%s", quote, text, quote);
    return words->text;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

json_object *json_exact_number(const char *text) { return json_object_new_double_s(strtod(text, NULL), text); }

/* Writes the shortest decimal that reads back as the same double. */
static void shortest(char *text, size_t size, double value)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

json_object *json_number(double value)
{
    char text[40];
    shortest(text, sizeof text, value);
    return isfinite(value) ? json_exact_number(text) : NULL;
}

json_object *json_python_float(double value)
{
    char text[40];
    shortest(text, sizeof text - 3, value);
    if (!strpbrk(text, ".en"))
        memcpy(text + strlen(text), ".0", 3);
    return json_exact_number(text);
}

bool json_put(json_object *object, const char *key, json_object *value)
{
    if (object && json_object_object_add(object, key, value) == 0)
        return true;
    json_object_put(value);
    return false;
}

bool json_append(json_object *array, json_object *value)
{
    if (array && json_object_array_add(array, value) == 0)
        return true;
    json_object_put(value);
    return false;
}

/* Adds a value that is no null. Returns it, or NULL. */
static json_object *put_made(json_object *object, const char *key, json_object *value)
{
    return value && json_put(object, key, value) ? value : NULL;
}

bool json_put_text(json_object *object, const char *key, const char *text)
{
    return put_made(object, key, json_object_new_string(text)) != NULL;
}

bool json_put_count(json_object *object, const char *key, uint64_t count)
{
    return put_made(object, key, json_object_new_uint64(count)) != NULL;
}

bool json_put_bool(json_object *object, const char *key, bool value)
{
    return put_made(object, key, json_object_new_boolean(value)) != NULL;
}

bool json_append_text(json_object *array, const char *text)
{
    json_object *value = json_object_new_string(text);
    return value && json_append(array, value);
}

json_object *json_put_object(json_object *object, const char *key)
{
    return put_made(object, key, json_object_new_object());
}

json_object *json_put_array(json_object *object, const char *key)
{
    return put_made(object, key, json_object_new_array());
}

json_object *json_copy(const json_object *v)
{
    json_object *copy = NULL;
    return v && json_object_deep_copy(writable(v), &copy, NULL) == 0 ? copy : NULL;
}
