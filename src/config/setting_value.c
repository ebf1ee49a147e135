/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Values of settings from text and to text. */
#include "config/settings.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"

static void list_words(const struct word *words, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (; words->text && used < size; words++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", words->text);
}

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
    if (!parse_real(value, &number) || number != floor(number) || number < min || number > max)
        return false;
    *out = (int64_t)number;
    return true;
}

enum { LIST_SIZE = 64 };

/* Copies a list without blanks and brackets; false if it is too long. */
static bool strip_brackets(const char *value, char list[LIST_SIZE])
{
    if (strlen(value) >= LIST_SIZE)
        return false;
    for (; *value; value++)
        if (!strchr(" []()", *value))
            *list++ = *value;
    *list = '\0';
    return true;
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

static int parse_word(const struct setting *s, const char *value, int *out, qobs_error *error)
{
    const char *word = strncmp(value, "torch.", 6) == 0 ? value + 6 : value;
    for (const struct word *w = s->words; w->text; w++)
        if (qobs_equal_ignoring_case(w->text, word)) {
            *out = w->value;
            return QOBS_OK;
        }
    char known[220];
    list_words(s->words, known, sizeof known);
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: '%s' is unknown, allowed are %s", s->key, value, known);
}

static int parse_bool(const struct setting *s, const char *value, bool *out, qobs_error *error)
{
    const bool yes = qobs_equal_ignoring_case(value, "true");
    if (!yes && !qobs_equal_ignoring_case(value, "false"))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is '%s', allowed are true and false", s->key, value);
    *out = yes;
    return QOBS_OK;
}

static int out_of_range(const struct setting *s, const char *value, qobs_error *error)
{
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is '%s', allowed are %s from %.15g to %.15g", s->key,
                     value,
                     s->kind == KIND_REAL   ? "numbers"
                     : s->kind == KIND_PAIR ? "two integers [height, width]"
                     : s->kind == KIND_AXES ? "lists of integers"
                                            : "integers",
                     s->min, s->max);
}

/* Configurations of llm-compressor contain the name of their observer. */
static int check_own_name(const struct setting *s, const char *value, const struct qobs_config *config,
                          qobs_error *error)
{
    if (strcmp(value, strchr(config->preset->name, '.') + 1) == 0)
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is '%s', but the preset is %s", s->key, value,
                     config->preset->name);
}

static int parse_field(const struct setting *s, const char *value, struct qobs_config *config, qobs_error *error)
{
    void *field = (unsigned char *)config + s->field;
    int64_t integer, pair[2];
    struct axes axes;
    double real;
    switch (s->kind) {
    case KIND_WORD:
        return parse_word(s, value, field, error);
    case KIND_BOOL:
        return parse_bool(s, value, field, error);
    case KIND_INTEGER:
        if (!parse_integer(value, s->min, s->max, &integer))
            return out_of_range(s, value, error);
        *(int *)field = (int)integer;
        return QOBS_OK;
    case KIND_LONG:
        if (!parse_integer(value, s->min, s->max, &integer))
            return out_of_range(s, value, error);
        *(int64_t *)field = integer;
        return QOBS_OK;
    case KIND_REAL:
        if (!parse_real(value, &real) || real < s->min || real > s->max)
            return out_of_range(s, value, error);
        *(double *)field = real;
        return QOBS_OK;
    case KIND_OWN_NAME:
        return check_own_name(s, value, config, error);
    case KIND_AXES:
        if (!parse_axes(value, s, &axes))
            return out_of_range(s, value, error);
        *(struct axes *)field = axes;
        return QOBS_OK;
    default:
        if (!parse_pair(value, s, pair))
            return out_of_range(s, value, error);
        memcpy(field, pair, sizeof pair);
        return QOBS_OK;
    }
}

int qobs_setting_parse(const struct setting *s, const char *value, struct qobs_config *config, qobs_error *error)
{
    const int status = parse_field(s, value, config, error);
    if (status == QOBS_OK && s->set != NO_FIELD)
        *(bool *)((unsigned char *)config + s->set) = true;
    return status;
}

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

int qobs_setting_print(const struct setting *s, const struct qobs_config *config, char *value, size_t size)
{
    const unsigned char *base = (const unsigned char *)config;
    const void *field = base + s->field;
    if (s->set != NO_FIELD && !*(const bool *)(base + s->set))
        return snprintf(value, size, "null");
    switch (s->kind) {
    case KIND_WORD: {
        const char *text = qobs_word_text(s->words, *(const int *)field);
        return snprintf(value, size, "%s", text ? text : "null");
    }
    case KIND_OWN_NAME:
        return snprintf(value, size, "%s", strchr(config->preset->name, '.') + 1);
    case KIND_BOOL:
        return snprintf(value, size, "%s", *(const bool *)field ? "true" : "false");
    case KIND_INTEGER:
        return snprintf(value, size, "%d", *(const int *)field);
    case KIND_LONG:
        return snprintf(value, size, "%lld", (long long)*(const int64_t *)field);
    case KIND_REAL: {
        const struct fp_text_mode mode = fp_enter_text();
        const int written = snprintf(value, size, "%.17g", *(const double *)field);
        fp_leave_text(mode);
        char *point = strchr(value, *localeconv()->decimal_point);
        if (point)
            *point = '.';
        return written;
    }
    case KIND_AXES: {
        const struct axes *axes = field;
        size_t used = (size_t)snprintf(value, size, "[");
        for (int k = 0; k < axes->count && used < size; k++)
            used += (size_t)snprintf(value + used, size - used, "%s%d", k ? ", " : "", axes->axis[k]);
        return (int)used + (used < size ? snprintf(value + used, size - used, "]") : 1);
    }
    default: {
        const int64_t *pair = field;
        return snprintf(value, size, "[%lld, %lld]", (long long)pair[0], (long long)pair[1]);
    }
    }
}
