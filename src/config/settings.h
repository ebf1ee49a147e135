/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The table of settings (settings.c), and their values from text and numbers (setting_value.c) and to text
 * (setting_print.c). A new setting is a row in settings.c and a field in struct qobs_config. */
#pragma once

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

#define NO_FIELD ((size_t)-1)

/* `set` is the bool field that is true once the setting has a value, or NO_FIELD. */
struct setting {
    const char *key;
    int families;
    bool (*only)(const struct preset *preset); /* selects presets of the families; NULL: all */
    enum setting_kind kind;
    size_t field, set;
    const struct word *words; /* of KIND_WORD and KIND_BOOL */
    double min, max;          /* of every number */
    const char *help;         /* one line for people */
    bool added;               /* since saved states of format 3: a state has it only if it has a value */
    bool of_codes;            /* states do not depend on it, and merge whatever its value */
};

/* True if a saved state has a line for the setting. */
bool qobs_setting_is_saved(const struct setting *setting, const struct qobs_config *config);

/* The setting of the preset with that index, in the order of the table, or NULL. */
const struct setting *qobs_setting_at(const struct preset *preset, size_t index);

/* The preset's setting of that name, or NULL. */
const struct setting *qobs_setting_find(const struct preset *preset, const char *key);

struct qobs_config qobs_config_defaults(const struct preset *preset);

/* Finds the preset's setting of that name; fails with the names that the preset has. */
int qobs_setting_require(const struct preset *preset, const char *key, const struct setting **setting,
                         qobs_error *error);

/* Sets the field from text, or back to its default. */
int qobs_setting_parse(const struct setting *setting, const char *value, struct qobs_config *config, qobs_error *error);
void qobs_setting_restore(const struct setting *setting, struct qobs_config *config);

/* Sets the field from a value of a type. A setting of another kind fails; a word may spell an integer or a boolean, and
 * an integer is a list of one. */
int qobs_setting_put_int(const struct setting *setting, int64_t value, struct qobs_config *config, qobs_error *error);
int qobs_setting_put_real(const struct setting *setting, double value, struct qobs_config *config, qobs_error *error);
int qobs_setting_put_bool(const struct setting *setting, bool value, struct qobs_config *config, qobs_error *error);

/* Writes the field as text that qobs_setting_parse accepts. Returns the length of the text. */
size_t qobs_setting_print(const struct setting *setting, const struct qobs_config *config,
                          char value[QOBS_SETTING_VALUE]);

/* The same with the 17 digits of real numbers that version 0.1 printed. */
void qobs_setting_print_in_full(const struct setting *setting, const struct qobs_config *config,
                                char value[QOBS_SETTING_VALUE]);

/* Writes the shortest text that reads back as the same double, in any locale. */
void qobs_print_real(double x, char text[QOBS_SETTING_VALUE]);

/* The part of the preset's name after the family: the value of KIND_OWN_NAME. */
const char *qobs_preset_own_name(const struct preset *preset);

const char *qobs_word_text(const struct word *words, int value); /* or NULL */
bool qobs_equal_ignoring_case(const char *a, const char *b);
