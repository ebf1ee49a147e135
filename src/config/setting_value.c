/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Values of settings from text, from numbers and from booleans, and to text. */
#include "config/settings.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"

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

static bool parse_integer(const char *value, double min, double max, int64_t *out)
{
    double number;
    const size_t sign = *value == '-';
    if (value[sign] && strspn(value + sign, "0123456789") == strlen(value + sign)) { /* beyond 2^53, too, exactly */
        errno = 0;
        *out = strtoll(value, NULL, 10);
        return errno == 0 && *out >= (int64_t)min && *out <= (int64_t)max;
    }
    if (!parse_real(value, &number) || number != floor(number) || number < min || number > max)
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
    return parse_integer(list, s->min, s->max, &pair[0]) && parse_integer(second, s->min, s->max, &pair[1]);
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
        if (axes->count == QOBS_MAX_NDIM || !parse_integer(part, s->min, s->max, &axis))
            return false;
        axes->axis[axes->count++] = (int)axis;
    }
    return true;
}

bool qobs_equal_ignoring_case(const char *a, const char *b)
{
    for (; *a && tolower((unsigned char)*a) == tolower((unsigned char)*b); a++, b++)
        ;
    return *a == '\0' && *b == '\0';
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

enum { ALLOWED = 220, SHOWN = 60 /* bytes of a value */ };

static void list_words(const struct word *words, char allowed[ALLOWED])
{
    size_t used = 0;
    for (; words->text && used < ALLOWED; words++)
        used += (size_t)snprintf(allowed + used, ALLOWED - used, "%s%s", used ? ", " : "", words->text);
}

static void describe_allowed(const struct setting *s, const struct qobs_config *config, char allowed[ALLOWED])
{
    if (s->kind == KIND_WORD)
        list_words(s->words, allowed);
    else if (s->kind == KIND_BOOL)
        snprintf(allowed, ALLOWED, "true and false");
    else if (s->kind == KIND_OWN_NAME)
        snprintf(allowed, ALLOWED, "%s only, because the preset is %s", qobs_preset_own_name(config->preset),
                 config->preset->name);
    else {
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

/* `type` is "" or the type of the value. */
static int refuse(const struct setting *s, const char *type, const char *value, const struct qobs_config *config,
                  qobs_error *error)
{
    char allowed[ALLOWED];
    describe_allowed(s, config, allowed);
    const char *rest = strlen(value) > SHOWN ? "..." : "";
    return qobs_invalid(error, "%s: is %s'%.*s%s', allowed are %s", s->key, type, SHOWN, value, rest, allowed);
}

/* ---- From text --------------------------------------------------------------------------------------------------- */

static bool parse_word(const struct setting *s, const char *value, int *out)
{
    const char *word = strncmp(value, "torch.", 6) == 0 ? value + 6 : value;
    for (const struct word *w = s->words; w->text; w++)
        if (qobs_equal_ignoring_case(w->text, word)) {
            *out = w->value;
            return true;
        }
    return false;
}

static bool parse_bool(const char *value, bool *out)
{
    *out = qobs_equal_ignoring_case(value, "true");
    return *out || qobs_equal_ignoring_case(value, "false");
}

static bool parse_field(const struct setting *s, const char *value, struct qobs_config *config)
{
    void *field = (unsigned char *)config + s->field;
    int64_t integer, pair[2];
    struct axes axes;
    double real;
    bool yes, known = false;
    switch (s->kind) {
    case KIND_WORD:
        return parse_word(s, value, field);
    case KIND_BOOL:
        if ((known = parse_bool(value, &yes)))
            *(bool *)field = yes;
        return known;
    case KIND_INTEGER:
        if ((known = parse_integer(value, s->min, s->max, &integer)))
            *(int *)field = (int)integer;
        return known;
    case KIND_LONG:
        if ((known = parse_integer(value, s->min, s->max, &integer)))
            *(int64_t *)field = integer;
        return known;
    case KIND_REAL:
        if ((known = parse_real(value, &real) && real >= s->min && real <= s->max))
            *(double *)field = real;
        return known;
    case KIND_OWN_NAME: /* configurations of llm-compressor contain the name of their observer */
        return strcmp(value, qobs_preset_own_name(config->preset)) == 0;
    case KIND_AXES:
        if ((known = parse_axes(value, s, &axes)))
            *(struct axes *)field = axes;
        return known;
    default:
        if ((known = parse_pair(value, s, pair)))
            memcpy(field, pair, sizeof pair);
        return known;
    }
}

/* The setting has a value from now on. */
static int mark_set(const struct setting *s, struct qobs_config *config)
{
    if (s->set != NO_FIELD)
        *(bool *)((unsigned char *)config + s->set) = true;
    return QOBS_OK;
}

int qobs_setting_parse(const struct setting *s, const char *value, struct qobs_config *config, qobs_error *error)
{
    return parse_field(s, value, config) ? mark_set(s, config) : refuse(s, "", value, config, error);
}

/* ---- From numbers and booleans ----------------------------------------------------------------------------------- */

/* The limits of integers are integers below 2^54, so none of them is rounded here. */
static bool is_within(const struct setting *s, int64_t value)
{
    return value >= (int64_t)s->min && value <= (int64_t)s->max;
}

int qobs_setting_put_int(const struct setting *s, int64_t value, struct qobs_config *config, qobs_error *error)
{
    void *field = (unsigned char *)config + s->field;
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    switch (s->kind) {
    case KIND_WORD:
        return parse_word(s, text, field) ? mark_set(s, config) : refuse(s, "the integer ", text, config, error);
    case KIND_INTEGER:
    case KIND_LONG:
    case KIND_AXES:
        break;
    default:
        return refuse(s, "the integer ", text, config, error);
    }
    if (!is_within(s, value))
        return refuse(s, "", text, config, error);
    if (s->kind == KIND_INTEGER)
        *(int *)field = (int)value;
    else if (s->kind == KIND_LONG)
        *(int64_t *)field = value;
    else
        *(struct axes *)field = (struct axes){.count = 1, .axis = {(int)value}};
    return mark_set(s, config);
}

int qobs_setting_put_real(const struct setting *s, double value, struct qobs_config *config, qobs_error *error)
{
    if (s->kind == KIND_REAL && value >= s->min && value <= s->max) { /* not NaN */
        *(double *)((unsigned char *)config + s->field) = value;
        return mark_set(s, config);
    }
    char text[QOBS_SETTING_VALUE];
    qobs_print_real(value, text);
    return refuse(s, s->kind == KIND_REAL ? "" : "the real number ", text, config, error);
}

int qobs_setting_put_bool(const struct setting *s, bool value, struct qobs_config *config, qobs_error *error)
{
    const char *text = value ? "true" : "false";
    const bool can = s->kind == KIND_BOOL || s->kind == KIND_WORD;
    return can && parse_field(s, text, config) ? mark_set(s, config) : refuse(s, "the boolean ", text, config, error);
}

/* ---- Back to the default ----------------------------------------------------------------------------------------- */

void qobs_setting_restore(const struct setting *s, struct qobs_config *config)
{
    static const size_t sizes[] = {
        [KIND_WORD] = sizeof(int),         [KIND_BOOL] = sizeof(bool),   [KIND_INTEGER] = sizeof(int),
        [KIND_LONG] = sizeof(int64_t),     [KIND_REAL] = sizeof(double), [KIND_PAIR] = 2 * sizeof(int64_t),
        [KIND_AXES] = sizeof(struct axes), [KIND_OWN_NAME] = 0};
    const struct qobs_config defaults = qobs_config_defaults(config->preset);
    memcpy((unsigned char *)config + s->field, (const unsigned char *)&defaults + s->field, sizes[s->kind]);
    if (s->set != NO_FIELD)
        *(bool *)((unsigned char *)config + s->set) = false;
}

/* ---- To text ------------------------------------------------------------------------------------------------------
 */

enum { MOST_DIGITS = 17 }; /* identify every double */

static void print_digits(double x, int digits, char text[QOBS_SETTING_VALUE])
{
    snprintf(text, QOBS_SETTING_VALUE, "%.*g", digits, x);
}

static void replace_point(char *text)
{
    char *point = strchr(text, *localeconv()->decimal_point);
    if (point)
        *point = '.';
}

void qobs_print_real(double x, char text[QOBS_SETTING_VALUE])
{
    size_t shortest = QOBS_SETTING_VALUE;
    const struct fp_text_mode mode = fp_enter_text();
    for (int digits = 1; digits <= MOST_DIGITS; digits++) {
        char candidate[QOBS_SETTING_VALUE];
        print_digits(x, digits, candidate);
        if (strlen(candidate) > shortest || (digits < MOST_DIGITS && strtod(candidate, NULL) != x))
            continue;
        memcpy(text, candidate, sizeof candidate);
        shortest = strlen(text);
        if (!strchr(text, 'e')) /* else a text without exponent may follow: 1e+02, 100 */
            break;
    }
    fp_leave_text(mode);
    replace_point(text);
}

static size_t print_axes(const struct axes *axes, char value[QOBS_SETTING_VALUE])
{
    size_t used = (size_t)snprintf(value, QOBS_SETTING_VALUE, "[");
    for (int k = 0; k < axes->count; k++)
        used += (size_t)snprintf(value + used, QOBS_SETTING_VALUE - used, "%s%d", k ? ", " : "", axes->axis[k]);
    return used + (size_t)snprintf(value + used, QOBS_SETTING_VALUE - used, "]");
}

size_t qobs_setting_print(const struct setting *s, const struct qobs_config *config, char value[QOBS_SETTING_VALUE])
{
    const unsigned char *base = (const unsigned char *)config;
    const void *field = base + s->field;
    const char *word;
    if (s->set != NO_FIELD && !*(const bool *)(base + s->set))
        return (size_t)snprintf(value, QOBS_SETTING_VALUE, "null");
    switch (s->kind) {
    case KIND_WORD:
        word = qobs_word_text(s->words, *(const int *)field);
        return (size_t)snprintf(value, QOBS_SETTING_VALUE, "%s", word ? word : "null");
    case KIND_OWN_NAME:
        return (size_t)snprintf(value, QOBS_SETTING_VALUE, "%s", qobs_preset_own_name(config->preset));
    case KIND_BOOL:
        return (size_t)snprintf(value, QOBS_SETTING_VALUE, "%s", *(const bool *)field ? "true" : "false");
    case KIND_INTEGER:
        return (size_t)snprintf(value, QOBS_SETTING_VALUE, "%d", *(const int *)field);
    case KIND_LONG:
        return (size_t)snprintf(value, QOBS_SETTING_VALUE, "%" PRId64, *(const int64_t *)field);
    case KIND_REAL:
        qobs_print_real(*(const double *)field, value);
        return strlen(value);
    case KIND_AXES:
        return print_axes(field, value);
    default: {
        const int64_t *pair = field;
        return (size_t)snprintf(value, QOBS_SETTING_VALUE, "[%" PRId64 ", %" PRId64 "]", pair[0], pair[1]);
    }
    }
}

void qobs_setting_print_in_full(const struct setting *s, const struct qobs_config *config,
                                char value[QOBS_SETTING_VALUE])
{
    qobs_setting_print(s, config, value);
    if (s->kind != KIND_REAL || strcmp(value, "null") == 0)
        return;
    const struct fp_text_mode mode = fp_enter_text();
    print_digits(*(const double *)((const unsigned char *)config + s->field), MOST_DIGITS, value);
    fp_leave_text(mode);
    replace_point(value);
}

const char *qobs_preset_own_name(const struct preset *preset) { return strchr(preset->name, '.') + 1; }
