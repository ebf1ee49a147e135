/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Values of settings to text. */
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpenv.h"
#include "config/settings.h"

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
