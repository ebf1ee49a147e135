/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Values of settings from text, from numbers and from booleans, and to text. */
#include "config/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fpenv.h"

/* A value of any kind, and the size of each. */
union value {
    int integer; /* and the value of a word */
    bool yes;
    int64_t wide, pair[2];
    double real;
    struct axes axes;
};

static const size_t sizes[] = {
    [KIND_WORD] = sizeof(int),         [KIND_BOOL] = sizeof(bool),   [KIND_INTEGER] = sizeof(int),
    [KIND_LONG] = sizeof(int64_t),     [KIND_REAL] = sizeof(double), [KIND_PAIR] = 2 * sizeof(int64_t),
    [KIND_AXES] = sizeof(struct axes), [KIND_OWN_NAME] = 0};

/* Numbers as JSON writes them, in any locale. */
static bool parse_real(const char *value, double *out)
{
    char buffer[64];
    const size_t length = strlen(value);
    if (length >= sizeof buffer || *value == '\0' || strspn(value, "0123456789+-.eE") != length)
        return false;
    memcpy(buffer, value, length + 1);
    char *point = strchr(buffer, '.');
    if (point)
        *point = *localeconv()->decimal_point;
    char *end;
    const struct fp_text_mode mode = fp_enter_text();
    *out = strtod(buffer, &end);
    fp_leave_text(mode);
    return *end == '\0' && isfinite(*out);
}

static bool parse_integer(const char *value, const struct setting *s, int64_t *out)
{
    double number;
    const size_t sign = *value == '-';
    if (value[sign] && strspn(value + sign, "0123456789") == strlen(value + sign)) { /* beyond 2^53, too, exactly */
        errno = 0;
        *out = strtoll(value, NULL, 10);
        return errno == 0 && *out >= (int64_t)s->min && *out <= (int64_t)s->max;
    }
    if (!parse_real(value, &number) || number != floor(number) || number < s->min || number > s->max)
        return false;
    *out = (int64_t)number;
    return true;
}

enum { LIST_SIZE = 64 };

/* Copies a list without blanks and without the one pair of brackets that may surround it; false if it is too long, if
 * brackets do not match, and if there is nothing. */
static bool strip_brackets(const char *value, char list[LIST_SIZE])
{
    size_t n = 0;
    if (strlen(value) >= LIST_SIZE)
        return false;
    for (; *value; value++)
        if (*value != ' ')
            list[n++] = *value;
    list[n] = '\0';
    const char *close = n > 0 && list[0] == '[' ? "]" : n > 0 && list[0] == '(' ? ")" : "";
    if (n == 0 || (*close && (n < 2 || list[n - 1] != *close)))
        return false;
    if (*close) {
        memmove(list, list + 1, n - 2);
        list[n - 2] = '\0';
    }
    return strpbrk(list, "[]()") == NULL;
}

static bool parse_pair(const char *value, const struct setting *s, int64_t pair[2])
{
    char list[LIST_SIZE];
    char *second = strip_brackets(value, list) ? strpbrk(list, ",x") : NULL;
    if (!second)
        return false;
    *second++ = '\0';
    return parse_integer(list, s, &pair[0]) && parse_integer(second, s, &pair[1]);
}

static bool parse_axes(const char *value, const struct setting *s, struct axes *axes)
{
    char list[LIST_SIZE];
    if (!strip_brackets(value, list))
        return false;
    *axes = (struct axes){0};
    for (char *part = *list ? list : NULL, *next; part; part = next) {
        int64_t axis;
        next = strchr(part, ',');
        if (next)
            *next++ = '\0';
        if (axes->count == QOBS_MAX_NDIM || !parse_integer(part, s, &axis))
            return false;
        axes->axis[axes->count++] = (int)axis;
    }
    return true;
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

enum { ALLOWED = 220, SHOWN = 60 /* bytes of a value */ };

void qobs_list_word(char *list, size_t size, const char *word)
{
    const size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s", used ? ", " : "", word);
}

static void describe_allowed(const struct setting *s, const struct qobs_config *config, char allowed[ALLOWED])
{
    *allowed = '\0';
    for (const struct word *w = s->kind == KIND_WORD ? s->words : NULL; w && w->text; w++)
        qobs_list_word(allowed, ALLOWED, w->text);
    if (s->kind == KIND_BOOL)
        snprintf(allowed, ALLOWED, "true and false");
    else if (s->kind == KIND_OWN_NAME)
        snprintf(allowed, ALLOWED, "%s only, because the preset is %s", qobs_preset_own_name(config->preset),
                 config->preset->name);
    else if (s->kind != KIND_WORD) {
        const struct fp_text_mode mode = fp_enter_text();
        snprintf(allowed, ALLOWED, "%s from %.16g to %.16g",
                 s->kind == KIND_REAL   ? "numbers"
                 : s->kind == KIND_PAIR ? "two integers [height, width]"
                 : s->kind == KIND_AXES ? "lists of integers"
                                        : "integers",
                 s->min, s->max);
        fp_leave_text(mode);
    }
}

static int refuse(const struct setting *s, const char *value, const struct qobs_config *config, qobs_error *error)
{
    char allowed[ALLOWED];
    describe_allowed(s, config, allowed);
    const char *rest = strlen(value) > SHOWN ? "..." : "";
    return qobs_invalid(error, "%s: is '%.*s%s', allowed are %s", s->key, SHOWN, value, rest, allowed);
}

/* ---- From text --------------------------------------------------------------------------------------------------- */

static bool parse_word(const struct setting *s, const char *value, int *out)
{
    const char *word = strncmp(value, "torch.", 6) == 0 ? value + 6 : value;
    for (const struct word *w = s->words; w->text; w++)
        if (strcasecmp(w->text, word) == 0) {
            *out = w->value;
            return true;
        }
    return false;
}

static bool parse(const struct setting *s, const char *text, const struct qobs_config *config, union value *v)
{
    int64_t wide = 0;
    bool known;
    switch (s->kind) {
    case KIND_WORD:
        return parse_word(s, text, &v->integer);
    case KIND_BOOL:
        v->yes = strcasecmp(text, "true") == 0;
        return v->yes || strcasecmp(text, "false") == 0;
    case KIND_INTEGER:
        known = parse_integer(text, s, &wide);
        v->integer = (int)wide;
        return known;
    case KIND_LONG:
        return parse_integer(text, s, &v->wide);
    case KIND_REAL:
        return parse_real(text, &v->real) && v->real >= s->min && v->real <= s->max;
    case KIND_OWN_NAME: /* configurations of llm-compressor contain the name of their observer */
        return strcmp(text, qobs_preset_own_name(config->preset)) == 0;
    case KIND_AXES:
        return parse_axes(text, s, &v->axes);
    default:
        return parse_pair(text, s, v->pair);
    }
}

/* Sets the field; the setting has a value from now on. */
static int set(const struct setting *s, const union value *v, struct qobs_config *config)
{
    memcpy((unsigned char *)config + s->field, v, sizes[s->kind]);
    if (s->set != NO_FIELD)
        *(bool *)((unsigned char *)config + s->set) = true;
    return QOBS_OK;
}

int qobs_setting_parse(const struct setting *s, const char *value, struct qobs_config *config, qobs_error *error)
{
    union value v;
    return parse(s, value, config, &v) ? set(s, &v, config) : refuse(s, value, config, error);
}

enum { MOST_DIGITS = 17 }; /* identify every double */

/* The shortest text of at least so many digits that reads back as the same double, in any locale. */
static void print_real(double x, int least_digits, char text[QOBS_SETTING_VALUE])
{
    size_t shortest = QOBS_SETTING_VALUE;
    const struct fp_text_mode mode = fp_enter_text();
    for (int digits = least_digits; digits <= MOST_DIGITS; digits++) {
        char candidate[QOBS_SETTING_VALUE];
        snprintf(candidate, sizeof candidate, "%.*g", digits, x);
        if (strlen(candidate) > shortest || (digits < MOST_DIGITS && strtod(candidate, NULL) != x))
            continue;
        shortest = strlen(candidate);
        memcpy(text, candidate, shortest + 1); /* not what the stack had behind it */
        if (!strchr(text, 'e')) /* else a text without exponent may follow: 1e+02, 100 */
            break;
    }
    fp_leave_text(mode);
    char *point = strchr(text, *localeconv()->decimal_point);
    if (point)
        *point = '.';
}

/* ---- Back to the default ----------------------------------------------------------------------------------------- */

void qobs_setting_restore(const struct setting *s, struct qobs_config *config)
{
    const struct qobs_config defaults = qobs_config_defaults(config->preset);
    memcpy((unsigned char *)config + s->field, (const unsigned char *)&defaults + s->field, sizes[s->kind]);
    if (s->set != NO_FIELD)
        *(bool *)((unsigned char *)config + s->set) = false;
}

/* ---- To text ------------------------------------------------------------------------------------------------------
 */

static size_t print_axes(const struct axes *axes, char value[QOBS_SETTING_VALUE])
{
    size_t used = (size_t)snprintf(value, QOBS_SETTING_VALUE, "[");
    for (int k = 0; k < axes->count; k++)
        used += (size_t)snprintf(value + used, QOBS_SETTING_VALUE - used, "%s%d", k ? ", " : "", axes->axis[k]);
    return used + (size_t)snprintf(value + used, QOBS_SETTING_VALUE - used, "]");
}

size_t qobs_setting_print(const struct setting *s, const struct qobs_config *config, bool in_full,
                          char value[QOBS_SETTING_VALUE])
{
    const unsigned char *base = (const unsigned char *)config;
    const char *text = NULL;
    union value v;
    memcpy(&v, base + s->field, sizes[s->kind]);
    if (s->set != NO_FIELD && !*(const bool *)(base + s->set))
        return (size_t)snprintf(value, QOBS_SETTING_VALUE, "null");
    switch (s->kind) {
    case KIND_WORD:
        text = qobs_word_text(s->words, v.integer);
        break;
    case KIND_OWN_NAME:
        text = qobs_preset_own_name(config->preset);
        break;
    case KIND_BOOL:
        text = v.yes ? "true" : "false";
        break;
    case KIND_INTEGER:
        return (size_t)snprintf(value, QOBS_SETTING_VALUE, "%d", v.integer);
    case KIND_LONG:
        return (size_t)snprintf(value, QOBS_SETTING_VALUE, "%" PRId64, v.wide);
    case KIND_REAL:
        print_real(v.real, in_full ? MOST_DIGITS : 1, value);
        return strlen(value);
    case KIND_AXES:
        return print_axes(&v.axes, value);
    case KIND_PAIR:
        return (size_t)snprintf(value, QOBS_SETTING_VALUE, "[%" PRId64 ", %" PRId64 "]", v.pair[0], v.pair[1]);
    }
    return (size_t)snprintf(value, QOBS_SETTING_VALUE, "%s", text ? text : "null");
}

const char *qobs_preset_own_name(const struct preset *preset) { return strchr(preset->name, '.') + 1; }
