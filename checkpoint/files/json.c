/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scans the text for what cJSON would accept wrongly, then lets cJSON parse a copy of it. */
#include "files/json.h"

#include <errno.h>
#include <stdbool.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/utf8.h"

struct scan {
    const unsigned char *text;
    size_t length;
    size_t at;
    int depth;
    size_t values; /* upper bound of the number of values so far */
};

static int is_space(unsigned char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Skips a string whose opening quote is at s->at. Returns a description of the error, or NULL. */
static const char *scan_string(struct scan *s)
{
    for (s->at++; s->at < s->length;) {
        const unsigned char *p = s->text + s->at;
        const size_t left = s->length - s->at;
        if (*p == '"') {
            s->at++;
            return NULL;
        }
        if (*p < 0x20)
            return "a control character in a string";
        if (*p == '\\') {
            if (left >= 6 && memcmp(p, "\\u0000", 6) == 0)
                return "\\u0000 in a string"; /* cJSON would end the string there */
            s->at += left < 2 ? 1 : 2;
            continue;
        }
        const size_t step = utf8_sequence(p, left);
        if (step == 0)
            return "invalid UTF-8";
        s->at += step;
    }
    return "the text ends inside a string";
}

/* Rejects what cJSON accepts but JSON does not allow: control characters, invalid UTF-8, text after the value. Also
 * rejects escaped U+0000, deep nesting (stack) and too many values (memory). The grammar itself is left to cJSON.
 * Returns a description of the error at s->at, or NULL. */
static const char *scan_object(struct scan *s)
{
    while (s->at < s->length && is_space(s->text[s->at]))
        s->at++;
    if (s->at == s->length || s->text[s->at] != '{')
        return "an object must begin with '{'";
    do {
        const unsigned char c = s->text[s->at];
        if (c == '"') {
            const char *problem = scan_string(s);
            if (problem)
                return problem;
            continue;
        }
        if ((c < 0x20 && !is_space(c)) || c >= 0x7f)
            return "not a character of JSON";
        if ((c == '{' || c == '[') && ++s->depth > JSON_MAX_DEPTH)
            return "more than 32 levels deep";
        if ((c == '{' || c == '[' || c == ',') && ++s->values > JSON_MAX_VALUES)
            return "more than 4194304 values";
        if (c == '}' || c == ']')
            s->depth--;
        s->at++;
    } while (s->depth > 0 && s->at < s->length);
    if (s->depth > 0)
        return "the text ends inside an object";
    while (s->at < s->length && is_space(s->text[s->at]))
        s->at++;
    return s->at < s->length ? "text after the object" : NULL;
}

int json_parse(cJSON **root, const char *path, const char *part, const void *text, size_t length, struct fail *f)
{
    *root = NULL;
    if (length > JSON_MAX_BYTES)
        return fail(f, "%s: the %s has %zu bytes; at most %d are allowed", path, part, length, JSON_MAX_BYTES);
    /* Parse a copy: another process may write to the file after the scan. */
    char *copy = malloc(length + 1);
    if (!copy)
        return fail(f, "%s: out of memory for %zu bytes of %s", path, length, part);
    memcpy(copy, text, length);
    copy[length] = '\0';
    struct scan s = {.text = (const unsigned char *)copy, .length = length};
    const char *problem = scan_object(&s);
    if (!problem) {
        const char *end = copy;
        errno = 0;
        *root = cJSON_ParseWithLengthOpts(copy, length, &end, 0);
        if (!*root) {
            problem = errno == ENOMEM ? "out of memory" : "syntax error";
            s.at = (size_t)(end - copy);
        }
    }
    free(copy);
    return problem ? fail(f, "%s: the %s cannot be read as JSON: %s at its byte %zu", path, part, problem, s.at) : 0;
}

/* ---- Exact numbers ----------------------------------------------------------------------------------------------- */

/* Returns the next number of a valid text from *at on, and its length; NULL: none. */
static const char *next_number(const char *text, size_t size, size_t *at, size_t *length)
{
    bool in_string = false;
    for (size_t i = *at; i < size; i++) {
        if (in_string && text[i] == '\\') {
            i++;
        } else if (text[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && (text[i] == '-' || (text[i] >= '0' && text[i] <= '9'))) {
            *length = 0;
            while (i + *length < size && strchr("+-.eE0123456789", text[i + *length]) && text[i + *length])
                ++*length;
            *at = i + *length;
            return text + i;
        }
    }
    return NULL;
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns a key that occurs twice in the object; NULL: none. *failed is set if there is no memory. */
static const char *repeated_key(const cJSON *object, bool *failed)
{
    const size_t count = (size_t)cJSON_GetArraySize(object);
    const char **keys = malloc((count + 1) * sizeof *keys), *found = NULL;
    const cJSON *item;
    size_t n = 0;
    if (!keys) {
        *failed = true;
        return NULL;
    }
    cJSON_ArrayForEach(item, object) { keys[n++] = item->string; }
    qsort(keys, n, sizeof *keys, compare_strings);
    for (size_t i = 1; i < n && !found; i++)
        found = strcmp(keys[i - 1], keys[i]) == 0 ? keys[i] : NULL;
    free(keys);
    return found;
}

struct exact {
    const char *text, *path, *part;
    size_t size, at;
};

/* Gives every number its text, in the order of the document. */
static int make_exact(cJSON *item, struct exact *e, struct fail *f)
{
    size_t length;
    bool failed = false;
    if (cJSON_IsNumber(item)) {
        const char *number = next_number(e->text, e->size, &e->at, &length);
        item->valuestring = number ? cJSON_malloc(length + 1) : NULL;
        if (!item->valuestring)
            return fail(f, "%s: out of memory for the %s", e->path, e->part);
        memcpy(item->valuestring, number, length);
        item->valuestring[length] = '\0';
    }
    const char *repeated = cJSON_IsObject(item) ? repeated_key(item, &failed) : NULL;
    if (repeated || failed)
        return failed ? fail(f, "%s: out of memory for the %s", e->path, e->part)
                      : fail(f, "%s: the %s has the key '%.200s' twice", e->path, e->part, repeated);
    for (cJSON *child = item->child; child; child = child->next)
        if (make_exact(child, e, f) != 0)
            return -1;
    return 0;
}

int json_parse_exact(cJSON **root, const char *path, const char *part, const void *text, size_t length, struct fail *f)
{
    struct exact e = {.text = text, .path = path, .part = part, .size = length};
    if (json_parse(root, path, part, text, length, f) != 0)
        return -1;
    if (make_exact(*root, &e, f) == 0)
        return 0;
    cJSON_Delete(*root);
    *root = NULL;
    return -1;
}

int json_integer(const cJSON *item, uint64_t *value)
{
    if (!cJSON_IsNumber(item))
        return -1;
    const double d = item->valuedouble;
    if (!(d >= 0 && d <= (double)JSON_MAX_INTEGER) || d != (double)(uint64_t)d)
        return -1;
    *value = (uint64_t)d;
    return 0;
}

cJSON *json_number(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    return isfinite(value) ? cJSON_CreateRaw(text) : cJSON_CreateNull();
}

const char *json_describe(const cJSON *item, struct json_words *words)
{
    if (cJSON_IsNumber(item))
        snprintf(words->text, sizeof words->text, "%.17g", item->valuedouble);
    else if (cJSON_IsString(item))
        snprintf(words->text, sizeof words->text, "\"%.80s\"", item->valuestring);
    else
        snprintf(words->text, sizeof words->text, "%s",
                 !item                  ? "missing"
                 : cJSON_IsNull(item)   ? "null"
                 : cJSON_IsBool(item)   ? (cJSON_IsTrue(item) ? "true" : "false")
                 : cJSON_IsArray(item)  ? "an array"
                 : cJSON_IsObject(item) ? "an object"
                                        : "no value");
    return words->text;
}
