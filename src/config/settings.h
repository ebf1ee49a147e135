/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The table of settings (settings.c) and what turns a value's text into its field and back (setting_value.c). */
#ifndef QOBS_SETTINGS_H
#define QOBS_SETTINGS_H

#include "config/config.h"

enum kind {
    KIND_WORD, /* one of `words`, stored as int: the value beside it */
    KIND_BOOL,
    KIND_INTEGER,        /* int */
    KIND_LONG,           /* int64_t */
    KIND_REAL,           /* double */
    KIND_AXES,           /* struct axes; "[0, -1]" or "0" */
    KIND_PAIR,           /* int64_t[2]; "[h, w]" or "hxw" */
    KIND_OWN_NAME        /* no field: the preset's, which must agree */
};

struct word {
    const char *text;
    int value;
};

#define NO_FIELD ((size_t)-1)

/* `set` is the field that says whether the setting has been given, where that makes a difference. */
struct setting {
    const char *key;
    int families;
    bool (*only)(const struct preset *preset); /* of the families' presets; NULL: all */
    enum kind kind;
    size_t field, set;
    const struct word *words;
    double quant_min, quant_max;
};

/* The index-th setting the preset has, in the table's order, or NULL. */
const struct setting *qobs_setting_at(const struct preset *preset, size_t index);

/* The preset's setting of that name, or NULL. */
const struct setting *qobs_setting_find(const struct preset *preset, const char *key);

struct qobs_config qobs_config_defaults(const struct preset *preset);

/* Set the field from text, or back to its default. */
int qobs_setting_parse(const struct setting *setting, const char *value, struct qobs_config *config, qobs_error *error);
void qobs_setting_restore(const struct setting *setting, struct qobs_config *config);

/* Write the field as text that qobs_setting_parse takes; the length it needs, as snprintf returns it. */
int qobs_setting_print(const struct setting *setting, const struct qobs_config *config, char *value, size_t size);

const char *qobs_word_text(const struct word *words, int value); /* or NULL */
bool qobs_equal_ignoring_case(const char *a, const char *b);

#endif
