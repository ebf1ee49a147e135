/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Builds trees of json-c from texts that json_scan.c has checked: json-c's own parser loses the text of some numbers
 * and takes a key twice. */
#include "files/json.h"

#include <inttypes.h>
#include <json-c/linkhash.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/mapped.h"
#include "files/text.h"

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static int no_memory(const char *path, const char *part, struct fail *f)
{
    return fail_system(f, "%s: out of memory for the %s", path, part);
}

/* Integers of 64 bits are integers, as json-c has them; other numbers keep their text. */
static json_object *build_number(struct json_span span)
{
    OWNED char *text = strndup(span.text, span.length);
    json_object *v =
        text && strspn(text, "-0123456789") == span.length ? json_object_new_int64(strtoll(text, NULL, 10)) : NULL;
    if (text && (!v || strcmp(json_scalar(v, &(struct json_scalar){{0}}), text) != 0)) { /* -0, or more than 64 bits */
        json_object_put(v);
        v = json_exact_number(text);
    }
    return v;
}

static int build(json_object **v, struct json_span span, const char *path, const char *part, struct fail *f);

/* Builds what is between the brackets of `parent`. */
static int build_members(json_object *parent, struct json_span span, const char *path, const char *part, struct fail *f)
{
    struct json_walk w = json_enter(span.text);
    struct json_span key, value;
    while (json_step(&w, &key, &value)) {
        json_object *item;
        OWNED char *name = key.text ? json_span_string(key) : NULL;
        if (name && json_has(parent, name))
            return fail(f, "%s: the %s has the key '%.200s' twice", path, part, name);
        RETURN_IF_NOT_OK(build(&item, value, path, part, f));
        if (!(name ? json_put(parent, name, item) : !key.text && json_append(parent, item)))
            return no_memory(path, part, f);
    }
    return 0;
}

/* Builds the tree of a checked value. */
static int build(json_object **v, struct json_span span, const char *path, const char *part, struct fail *f)
{
    const char c = *span.text;
    OWNED char *text = c == '"' ? json_span_string(span) : NULL;
    *v = c == '{'               ? json_object_new_object()
         : c == '['             ? json_object_new_array_ext((int)json_span_count(span))
         : text                 ? json_object_new_string(text)
         : c == 't' || c == 'f' ? json_object_new_boolean(c == 't')
         : c == 'n' || c == '"' ? NULL
                                : build_number(span);
    if (!*v && c != 'n')
        return no_memory(path, part, f);
    const int result = c == '{' || c == '[' ? build_members(*v, span, path, part, f) : 0;
    if (result != 0) {
        json_object_put(*v);
        *v = NULL;
    }
    return result;
}

int json_parse(json_object **root, const char *path, const char *part, const void *text, size_t length, struct fail *f)
{
    OWNED char *copy;
    *root = NULL;
    RETURN_IF_NOT_OK(json_check(&copy, path, part, text, length, JSON_PYTHON, f));
    return build(root, (struct json_span){copy, strlen(copy)}, path, part, f);
}

int json_read(json_object **root, const char *path, const char *part, struct fail *f)
{
    RELEASED_BY(mapped_close) struct mapped map;
    *root = NULL;
    RETURN_IF_NOT_OK(mapped_open_whole(&map, path, f));
    return json_parse(root, path, part, map.data, map.size, f);
}

int json_parse_value(json_object **value, const char *text)
{
    struct json_span span = {.text = text + strspn(text, " \t\n\r")};
    span.length = strlen(span.text);
    while (span.length > 0 && strchr(" \t\n\r", span.text[span.length - 1]))
        span.length--;
    *value = NULL;
    return json_is_value(text) ? build(value, span, "", "", NULL) : -1;
}

bool json_is_number(const json_object *v)
{
    return json_object_is_type(v, json_type_int) || json_object_is_type(v, json_type_double);
}

void json_release(json_object **v) { json_object_put(*v); }

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

/* json-c asks for trees that may change: json_object_get_string() keeps the text of other values than strings in them,
 * and threads share trees. */
static json_object *writable(const json_object *v) { return (json_object *)(uintptr_t)v; }

const char *json_text(const json_object *v) { return json_is_string(v) ? json_object_get_string(writable(v)) : NULL; }

const char *json_text_of(const json_object *object, const char *key)
{
    const char *text = json_text(json_get(object, key));
    return text ? text : "";
}

double json_number_of(const json_object *object, const char *key, double otherwise)
{
    const json_object *v = json_get(object, key);
    return json_is_number(v) ? json_object_get_double(v) : otherwise;
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

const char *json_scalar(const json_object *v, struct json_scalar *text)
{
    if (!v || json_is_bool(v))
        return !v ? "null" : json_is_true(v) ? "true" : "false";
    if (json_object_is_type(v, json_type_double)) /* made by json_exact_number() */
        return json_object_get_userdata(writable(v));
    if (json_object_get_int64(v) < 0)
        snprintf(text->digits, sizeof text->digits, "%" PRId64, json_object_get_int64(v));
    else
        snprintf(text->digits, sizeof text->digits, "%" PRIu64, json_object_get_uint64(v));
    return text->digits;
}

const char *json_describe(const json_object *v, struct json_words *words)
{
    struct json_scalar scalar;
    const char *text = json_is_object(v)   ? "an object"
                       : json_is_array(v)  ? "an array"
                       : json_is_string(v) ? json_text(v)
                                           : json_scalar(v, &scalar);
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
    return text ? put_made(object, key, json_object_new_string(text)) != NULL : json_put(object, key, NULL);
}

bool json_put_count(json_object *object, const char *key, uint64_t count)
{
    return put_made(object, key, json_object_new_uint64(count)) != NULL;
}

json_object *json_report(void)
{
    json_object *report = json_object_new_object();
    json_put_count(report, "report_version", 1);
    return report;
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
