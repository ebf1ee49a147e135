/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Rows of settings, which the families have (family_*.c), what all rows have in common (settings.c), and values from
 * and to text and numbers (setting_value.c). A new setting is a row in a family and a member of its structure. */
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

#define NO_FIELD ((size_t)-1)

/* `set` is the bool field that is true once the setting has a value, or NO_FIELD. */
struct setting {
    const char *key;
    bool (*only)(const struct preset *preset); /* selects presets of the family; NULL: all */
    enum setting_kind kind;
    size_t field, set;
    const struct word *words; /* of KIND_WORD and KIND_BOOL; the last has no text */
    double min, max;          /* of every number */
    const char *help;         /* one line for people */
    bool added;               /* since saved states of format 3: a state has it only if it has a value */
    bool of_codes;            /* states do not depend on it, and merge whatever its value */
};

/* Rows for words, for true and false, for numbers, and for settings that have no value until they are set; ADDED: and
 * that a preset of saved states of format 3 got later. `field` is a member of struct qobs_config. */
#define EVERY NULL
#define FIELD(name) offsetof(struct qobs_config, name)
#define WORD(key, only, field, words, help)                                                                            \
    {key, only, KIND_WORD, FIELD(field), NO_FIELD, words, 0, 0, help, false, false}
#define SWITCH(key, only, field, help)                                                                                 \
    {key, only, KIND_BOOL, FIELD(field), NO_FIELD, qobs_switch_words, 0, 0, help, false, false}
#define NUMBER(key, only, kind, field, min, max, help)                                                                 \
    {key, only, kind, FIELD(field), NO_FIELD, NULL, min, max, help, false, false}
#define OPTIONAL(key, only, kind, field, set, min, max, help)                                                          \
    {key, only, kind, FIELD(field), FIELD(set), NULL, min, max, help, false, false}
#define ADDED(key, only, kind, field, set, min, max, help)                                                             \
    {key, only, kind, FIELD(field), FIELD(set), NULL, min, max, help, true, false}

/* Rows of several families. Every family begins with BASE_NAME and NONFINITE. */
#define BASE_NAME WORD("base_name", EVERY, base_name, qobs_base_names, "kind of the tensor")
#define NONFINITE(only, words) WORD("nonfinite", only, nonfinite, words, "treatment of NaN and infinity")
#define TORCH_HISTOGRAM                                                                                                \
    NUMBER("bins", qobs_preset_has_torch_histogram, KIND_LONG, histogram.bins, 1, 0x1p20, "number of bins"),           \
        NUMBER("upsample_rate", qobs_preset_has_torch_histogram, KIND_INTEGER, histogram.upsample_rate, 1, 0x1p20,     \
               "accepted, without effect, as in torch since 2.5"),                                                     \
        FLOAT32_COUNTS(qobs_preset_has_torch_histogram)
#define FLOAT32_COUNTS(only)                                                                                           \
    SWITCH("float32_counts", only, histogram.float32_counts, "counts stop at 2^24, as upstream's do")
#define PERCENTILE                                                                                                     \
    NUMBER("percentile", qobs_preset_has_percentile, KIND_REAL, histogram.percentile, 0, 100,                          \
           "share of the elements in the range, in percent")
#define CANDIDATES                                                                                                     \
    NUMBER("stride", qobs_preset_has_start_bin, KIND_LONG, histogram.stride, 1, 0x1p31,                                \
           "distance of the candidates in bins"),                                                                      \
        NUMBER("start_bin", qobs_preset_has_start_bin, KIND_LONG, histogram.start_bin, 0, 0x1p31, "first candidate")
#define NUM_BINS                                                                                                       \
    NUMBER("num_bins", qobs_preset_has_histogram, KIND_LONG, histogram.num_bins, 1, 0x1p20,                            \
           "number of bins of the first batch")
#define AVERAGING_CONSTANT(only)                                                                                       \
    NUMBER("averaging_constant", only, KIND_REAL, averaging_constant, 0, 1,                                            \
           "weight of a new batch in the moving average")
#define REDUCE_RANGE(only) SWITCH("reduce_range", only, reduce_range, "use one bit less")
#define QUANT_LIMITS                                                                                                   \
    OPTIONAL("quant_min", EVERY, KIND_LONG, quant_min, has_quant_min, -0x1p31, 0x1p32, "smallest quantized number"),   \
        OPTIONAL("quant_max", EVERY, KIND_LONG, quant_max, has_quant_max, -0x1p31, 0x1p32, "largest quantized number")
#define FIXED_QPARAMS                                                                                                  \
    OPTIONAL("scale", qobs_preset_is_fixed, KIND_REAL, scale, has_scale, -FLT_MAX, FLT_MAX, "the scale"),              \
        OPTIONAL("zero_point", qobs_preset_is_fixed, KIND_LONG, zero_point, has_zero_point, INT32_MIN, INT32_MAX,      \
                 "the zero point")
#define DYNAMIC_OF_ONE_BATCH(only)                                                                                     \
    SWITCH("is_dynamic", only, is_dynamic, "accepted; moving averages need `averaging_constant` 1 with it")
#define LEAST_AXIS (-QOBS_MAX_NDIM)
#define MOST_AXIS (QOBS_MAX_NDIM - 1)

extern const struct word qobs_switch_words[], qobs_nonfinite_modes[], qobs_histogram_nonfinite_modes[];

/* True if a saved state has a line for the setting. */
bool qobs_setting_is_saved(const struct setting *setting, const struct qobs_config *config);

/* Sets what states were saved with that have no line for it. */
void qobs_config_set_unsaved(struct qobs_config *config);

/* The setting of the preset with that index, in the order of its family's table, or NULL. */
const struct setting *qobs_setting_at(const struct preset *preset, size_t index);

/* The preset's setting of that name, or NULL. */
const struct setting *qobs_setting_find(const struct preset *preset, const char *key);

struct qobs_config qobs_config_defaults(const struct preset *preset);

/* The settings of the preset called `name`, which may name a release of llm-compressor. False: there is none. */
bool qobs_config_defaults_of(const char *name, struct qobs_config *config);

/* Checks all settings together. */
int qobs_settings_check(const struct qobs_config *config, qobs_error *error);

/* Finds the preset's setting of that name; fails with the names that the preset has. */
int qobs_setting_require(const struct preset *preset, const char *key, const struct setting **setting,
                         qobs_error *error);

/* Sets the field from text, or back to its default. */
int qobs_setting_parse(const struct setting *setting, const char *value, struct qobs_config *config, qobs_error *error);
void qobs_setting_restore(const struct setting *setting, struct qobs_config *config);

/* Writes the field as text that qobs_setting_parse accepts. Returns the length of the text. in_full: with the 17 digits
 * of real numbers that version 0.1 printed, else with the fewest that read back as the same double. */
size_t qobs_setting_print(const struct setting *setting, const struct qobs_config *config, bool in_full,
                          char value[QOBS_SETTING_VALUE]);

/* The part of the preset's name after the family: the value of KIND_OWN_NAME. */
const char *qobs_preset_own_name(const struct preset *preset);

/* Appends a word to a list of words, as far as there is room. */
void qobs_list_word(char *list, size_t size, const char *word);
