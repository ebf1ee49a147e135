/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The grammar of RFC 8259. json-c takes more: numbers such as 01 and 1., control characters in strings, halves of
 * surrogate pairs. */
#include "files/json.h"

#include <json-c/json_tokener.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/file_kind.h"
#include "files/text.h"

/* ---- Check ------------------------------------------------------------------------------------------------------- */

/* The text ends with NUL, which no part of the grammar takes. */
struct scan {
    const unsigned char *text;
    size_t length;
    size_t at;
    size_t values, containers;
    enum json_rules rules;
};

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void skip_space(struct scan *s)
{
    while (is_space((char)s->text[s->at]))
        s->at++;
}

/* Reads four hexadecimal digits; -1: there are none. */
static int read_unit(const unsigned char *p)
{
    int unit = 0;
    for (int i = 0; i < 4; i++) {
        const int c = p[i], digit = c >= '0' && c <= '9'   ? c - '0'
                                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                           : -1;
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

/* Skips an escape sequence, whose backslash is at s->at. */
static const char *scan_escape(struct scan *s)
{
    const unsigned char *p = s->text + s->at;
    if (p[1] != 'u') {
        s->at += p[1] ? 2 : 1; /* the NUL at the end stays ahead */
        return p[1] && strchr("\"\\/bfnrt", p[1]) ? NULL : "an unknown escape sequence";
    }
    const int unit = read_unit(p + 2);
    if (unit == 0)
        return "\\u0000 in a string"; /* keys end there */
    const bool high = unit >= 0xd800 && unit < 0xdc00;
    const int low = high && p[6] == '\\' && p[7] == 'u' ? read_unit(p + 8) : -1;
    if (unit < 0 || (unit >= 0xdc00 && unit < 0xe000) || (high && (low < 0xdc00 || low >= 0xe000)))
        return unit < 0 ? "an unknown escape sequence" : "half of a surrogate pair";
    s->at += high ? 12 : 6;
    return NULL;
}

/* Skips a string whose opening quote is at s->at. Returns a description of the error, or NULL. */
static const char *scan_string(struct scan *s)
{
    for (s->at++; s->at < s->length;) {
        const unsigned char *p = s->text + s->at;
        if (*p == '"') {
            s->at++;
            return NULL;
        }
        if (*p >= 0x20 && *p < 0x80 && *p != '\\') {
            s->at++;
            continue;
        }
        if (*p < 0x20)
            return "a control character in a string";
        if (*p == '\\') {
            const char *problem = scan_escape(s);
            if (problem)
                return s->at < s->length ? problem : "the text ends inside a string";
            continue;
        }
        const size_t step = utf8_sequence(p, s->length - s->at);
        if (step == 0)
            return "invalid UTF-8";
        s->at += step;
    }
    return "the text ends inside a string";
}

static bool scan_digits(struct scan *s)
{
    const size_t first = s->at;
    while (s->text[s->at] >= '0' && s->text[s->at] <= '9')
        s->at++;
    return s->at > first;
}

static bool scan_word(struct scan *s, const char *word)
{
    const size_t length = strlen(word);
    if (strncmp((const char *)s->text + s->at, word, length) != 0)
        return false;
    s->at += length;
    return true;
}

static const char syntax_error[] = "syntax error";

static const char *scan_number(struct scan *s)
{
    if (s->text[s->at] == '-')
        s->at++;
    if (s->rules == JSON_PYTHON && scan_word(s, "Infinity"))
        return NULL;
    if (s->text[s->at] == '0')
        s->at++;
    else if (!scan_digits(s))
        return syntax_error;
    if (s->text[s->at] == '.') {
        s->at++;
        if (!scan_digits(s))
            return syntax_error;
    }
    if (s->text[s->at] == 'e' || s->text[s->at] == 'E') {
        s->at++;
        if (s->text[s->at] == '+' || s->text[s->at] == '-')
            s->at++;
        if (!scan_digits(s))
            return syntax_error;
    }
    return NULL;
}

static const char *scan_value(struct scan *s, int depth);

/* Scans what is between brackets. */
static const char *scan_members(struct scan *s, bool object, int depth)
{
    const unsigned char end = object ? '}' : ']';
    if (depth > JSON_MAX_DEPTH)
        return "more than 32 levels deep";
    s->at++;
    skip_space(s);
    if (s->text[s->at] == end) {
        s->at++;
        return NULL;
    }
    for (;;) {
        const char *problem = NULL;
        if (object) {
            skip_space(s);
            problem = s->text[s->at] == '"' ? scan_string(s) : syntax_error;
            if (!problem)
                skip_space(s);
            if (!problem && s->text[s->at++] != ':') {
                s->at--;
                problem = syntax_error;
            }
        }
        problem = problem ? problem : scan_value(s, depth);
        if (problem)
            return problem;
        skip_space(s);
        const unsigned char c = s->text[s->at];
        if (c != ',' && c != end)
            return syntax_error;
        s->at++;
        if (c == end)
            return NULL;
    }
}

/* Scans one value. Limits depth (stack) and number of values (memory). Returns a description of the error at s->at, or
 * NULL. */
static const char *scan_value(struct scan *s, int depth)
{
    skip_space(s);
    const char c = (char)s->text[s->at];
    if (++s->values > JSON_MAX_VALUES)
        return "more than 4194304 values";
    if ((c == '{' || c == '[') && ++s->containers > JSON_MAX_CONTAINERS && s->rules == JSON_PYTHON)
        return "more than 1048576 objects and arrays";
    if (c == '{' || c == '[')
        return scan_members(s, c == '{', depth + 1);
    if (c == '"')
        return scan_string(s);
    if (c == '-' || (c >= '0' && c <= '9'))
        return scan_number(s);
    const bool known = scan_word(s, "true") || scan_word(s, "false") || scan_word(s, "null") ||
                       (s->rules == JSON_PYTHON && (scan_word(s, "NaN") || scan_word(s, "Infinity")));
    return known ? NULL : syntax_error;
}

static const char *scan_document(struct scan *s)
{
    skip_space(s);
    if (s->text[s->at] != '{')
        return "an object must begin with '{'";
    const char *problem = scan_value(s, 0);
    if (problem)
        return s->at >= s->length && strcmp(problem, syntax_error) == 0 ? "the text ends inside an object" : problem;
    skip_space(s);
    return s->at < s->length ? "text after the object" : NULL;
}

int json_check(char **copy, const char *path, const char *part, const void *text, size_t length, enum json_rules rules,
               struct fail *f)
{
    *copy = NULL;
    if (length > JSON_MAX_BYTES)
        return fail(f, "%s: the %s has %zu bytes; at most %d are allowed", path, part, length, JSON_MAX_BYTES);
    /* Check a copy: another process may write to the file afterwards. */
    char *own = malloc(length + 1);
    if (!own)
        return fail_system(f, "%s: out of memory for %zu bytes of %s", path, length, part);
    memcpy(own, text, length);
    own[length] = '\0';
    struct scan s = {.text = (const unsigned char *)own, .length = length, .rules = rules};
    const char *problem = scan_document(&s);
    if (problem) {
        const char *kind = file_kind(own, length);
        free(own);
        if (kind)
            return fail(f, "%s: is %s", path, kind);
        return fail(f, "%s: the %s cannot be read as JSON: %s at its byte %zu", path, part, problem, s.at);
    }
    const size_t space = strspn(own, " \t\n\r");
    memmove(own, own + space, length + 1 - space);
    *copy = own;
    return 0;
}

bool json_is_value(const char *text)
{
    struct scan s = {.text = (const unsigned char *)text, .length = strlen(text)};
    if (scan_value(&s, 0))
        return false;
    skip_space(&s);
    return s.at == s.length;
}

/* ---- Walk -------------------------------------------------------------------------------------------------------- */

static const char *after_space(const char *p)
{
    while (is_space(*p))
        p++;
    return p;
}

/* Returns the end of a checked string: a quote with an even number of backslashes before it. */
static const char *after_string(const char *p)
{
    for (;;) {
        p = strchr(p + 1, '"');
        const char *escape = p;
        while (escape[-1] == '\\')
            escape--;
        if ((p - escape) % 2 == 0)
            return p + 1;
    }
}

/* Returns the end of a checked value. */
static const char *after_value(const char *p)
{
    if (*p == '"')
        return after_string(p);
    if (*p != '{' && *p != '[') {
        while (*p != ',' && *p != ']' && *p != '}' && !is_space(*p))
            p++;
        return p;
    }
    int depth = 0;
    do {
        if (*p == '"') {
            p = after_string(p);
            continue;
        }
        depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        p++;
    } while (depth > 0);
    return p;
}

struct json_walk json_enter(const char *value) { return (struct json_walk){after_space(value + 1)}; }

bool json_step(struct json_walk *w, struct json_span *key, struct json_span *value)
{
    const char *p = w->at;
    if (*p == '}' || *p == ']')
        return false;
    p = after_space(p + (*p == ','));
    const char *end = after_value(p);
    *key = (struct json_span){0};
    if (*after_space(end) == ':') {
        *key = (struct json_span){p, (size_t)(end - p)};
        p = after_space(after_space(end) + 1);
        end = after_value(p);
    }
    *value = (struct json_span){p, (size_t)(end - p)};
    w->at = after_space(end);
    return true;
}

size_t json_span_count(struct json_span value)
{
    struct json_walk w = json_enter(value.text);
    struct json_span key, item;
    size_t n = 0;
    while (json_step(&w, &key, &item))
        n++;
    return n;
}

bool json_span_is(struct json_span key, const char *text)
{
    const size_t length = strlen(text);
    return key.length == length + 2 && memcmp(key.text + 1, text, length) == 0;
}

char *json_span_string(struct json_span value)
{
    if (!memchr(value.text, '\\', value.length))
        return strndup(value.text + 1, value.length - 2);
    struct json_tokener *tokener = json_tokener_new();
    json_object *string = tokener ? json_tokener_parse_ex(tokener, value.text, (int)value.length) : NULL;
    char *copy = string ? strdup(json_object_get_string(string)) : NULL;
    json_object_put(string);
    if (tokener)
        json_tokener_free(tokener);
    return copy;
}

int json_span_integer(struct json_span value, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < value.length; i++) {
        if (value.text[i] < '0' || value.text[i] > '9' || *number > JSON_MAX_INTEGER)
            return -1;
        *number = *number * 10 + (uint64_t)(value.text[i] - '0');
    }
    return *number <= JSON_MAX_INTEGER ? 0 : -1;
}

const char *json_span_describe(struct json_span value, struct json_words *words)
{
    const int shown = value.length < 80 ? (int)value.length : 80;
    if (*value.text == '{' || *value.text == '[')
        snprintf(words->text, sizeof words->text, "%s", *value.text == '{' ? "an object" : "an array");
    else
        snprintf(words->text, sizeof words->text, "%.*s%s", shown, value.text,
                 *value.text == '"' && value.length > 80 ? "\"" : "");
    return words->text;
}
