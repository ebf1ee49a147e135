/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The table of settings (settings.c), and conversion of values from and to text (setting_value.c). A new setting is a
 * row in settings.c and a field in struct qobs_config. */
#ifndef QOBS_SETTINGS_H
#define QOBS_SETTINGS_H

#include "config/config.h"

enum setting_kind {
    KIND_WORD, /* int: the value of one of `words` */
    KIND_BOOL,
    KIND_INTEGER, /* int */
    KIND_LONG,    /* int64_t */
    KIND_REAL,    /* double */
    KIND_AXES,    /* struct axes; "[0, -1]" or "0" */
    KIND_PAIR,    /* int64_t[2]; "[h, w]" or "hxw" */
    KIND_OWN_NAME /* no field: the name of the preset, which must agree */
};

struct word {
    const char *text;
    int value;
};

#define NO_FIELD ((size_t) - 1)

/* `set` is the bool field that is true once the setting has a value, or NO_FIELD. */
struct setting {
    const char *key;
    int families;
    bool (*only)(const struct preset *preset); /* selects presets of the families; NULL: all */
    enum setting_kind kind;
    size_t field, set;
    const struct word *words;
    double min, max;
};

/* The setting of the preset with that index, in the order of the table, or NULL. */
const struct setting *qobs_setting_at(const struct preset *preset, size_t index);

/* The preset's setting of that name, or NULL. */
const struct setting *qobs_setting_find(const struct preset *preset, const char *key);

struct qobs_config qobs_config_defaults(const struct preset *preset);

/* Sets the field from text, or back to its default. */
int qobs_setting_parse(const struct setting *setting, const char *value, struct qobs_config *config, qobs_error *error);
void qobs_setting_restore(const struct setting *setting, struct qobs_config *config);

/* Writes the field as text that qobs_setting_parse accepts. Returns the length of the text, as snprintf does. */
int qobs_setting_print(const struct setting *setting, const struct qobs_config *config, char *value, size_t size);

const char *qobs_word_text(const struct word *words, int value); /* or NULL */
bool qobs_equal_ignoring_case(const char *a, const char *b);

#endif
