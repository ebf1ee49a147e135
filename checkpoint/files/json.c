/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scans the text for what cJSON would accept wrongly, then lets cJSON parse a copy of it. */
#include "files/json.h"

#include <errno.h>
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
