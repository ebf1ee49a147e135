/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Settings as text, and what a setting is. */
#include <stdio.h>

#include "base/fpenv.h"
#include "base/struct_size.h"
#include "config/settings.h"
#include "config/resolve.h"
#include "quantize/row_quantizer.h"

/* ---- Values ------------------------------------------------------------------------------------------------------ */

const char *qobs_config_preset(const qobs_config *config) { return config ? config->preset->name : NULL; }

int qobs_config_get(const qobs_config *config, const char *key, char *value, size_t size, qobs_error *error)
{
    if (!config || !key || (!value && size > 0))
        return qobs_invalid(error, "%s: is NULL", !config ? "config" : !key ? "key" : "value");
    const struct setting *setting;
    RETURN_IF_FAILED(qobs_setting_require(config->preset, key, &setting, error));
    char text[QOBS_SETTING_VALUE];
    const size_t length = qobs_setting_print(setting, config, false, text);
    if (length >= size)
        return qobs_invalid(error, "size: is %zu, the value of %s needs %zu", size, key, length + 1);
    memcpy(value, text, length + 1);
    return qobs_succeed(error);
}

/* The name of the preset and the settings that are not its defaults, as far as there is room. Returns the length. */
static size_t print_config(const qobs_config *config, char *text, size_t size)
{
    const struct qobs_config defaults = qobs_config_defaults(config->preset);
    const struct setting *setting;
    size_t n = (size_t)snprintf(size > 0 ? text : NULL, size, "%s", config->preset->name);
    for (size_t i = 0; (setting = qobs_setting_at(config->preset, i)); i++) {
        char value[QOBS_SETTING_VALUE], usual[QOBS_SETTING_VALUE];
        qobs_setting_print(setting, config, false, value);
        qobs_setting_print(setting, &defaults, false, usual);
        if (strcmp(value, usual) != 0)
            n += (size_t)snprintf(n < size ? text + n : NULL, n < size ? size - n : 0, " %s=%s", setting->key, value);
    }
    return n;
}

int qobs_config_text(const qobs_config *config, char *text, size_t size, size_t *needed, qobs_error *error)
{
    const bool asks = !text && size == 0;
    if (!config || (!text && size > 0) || (asks && !needed))
        return qobs_invalid(error, "%s: is NULL", !config ? "config" : asks ? "needed" : "text");
    const size_t length = print_config(config, NULL, 0);
    if (!asks && length >= size)
        return qobs_invalid(error, "size: is %zu, the text needs %zu", size, length + 1);
    if (!asks)
        print_config(config, text, length + 1);
    if (needed)
        *needed = length + 1;
    return qobs_succeed(error);
}

/* ---- Descriptions ------------------------------------------------------------------------------------------------ */

size_t qobs_config_key_count(const qobs_config *config)
{
    size_t n = 0;
    while (config && qobs_setting_at(config->preset, n))
        n++;
    return n;
}

const char *qobs_config_key(const qobs_config *config, size_t index)
{
    const struct setting *setting = config ? qobs_setting_at(config->preset, index) : NULL;
    return setting ? setting->key : NULL;
}

const char *qobs_config_key_word(const qobs_config *config, const char *key, size_t index)
{
    const struct setting *setting = config && key ? qobs_setting_find(config->preset, key) : NULL;
    if (!setting)
        return NULL;
    if (setting->kind == KIND_OWN_NAME)
        return index == 0 ? qobs_preset_own_name(config->preset) : NULL;
    const struct word *word = setting->words;
    while (word && word->text && index > 0) {
        word++;
        index--;
    }
    return word ? word->text : NULL;
}

int qobs_config_key_info(const qobs_config *config, const char *key, qobs_setting_info *info, qobs_error *error)
{
    static const qobs_setting_kind kinds[] = {
        [KIND_WORD] = QOBS_SETTING_WORD,       [KIND_BOOL] = QOBS_SETTING_BOOL,
        [KIND_INTEGER] = QOBS_SETTING_INTEGER, [KIND_LONG] = QOBS_SETTING_INTEGER,
        [KIND_REAL] = QOBS_SETTING_REAL,       [KIND_AXES] = QOBS_SETTING_AXES,
        [KIND_PAIR] = QOBS_SETTING_PAIR,       [KIND_OWN_NAME] = QOBS_SETTING_OWN_NAME};
    if (!config || !key)
        return qobs_invalid(error, "%s: is NULL", config ? "key" : "config");
    const struct setting *setting;
    RETURN_IF_FAILED(out_check("info", info, SIZE_THROUGH(qobs_setting_info, default_value), error));
    RETURN_IF_FAILED(qobs_setting_require(config->preset, key, &setting, error));
    const struct qobs_config defaults = qobs_config_defaults(config->preset);
    qobs_setting_info made;
    memset(&made, 0, sizeof made);
    made.key = setting->key;
    made.kind = kinds[setting->kind];
    made.min = setting->min;
    made.max = setting->max;
    made.help = setting->help;
    while (qobs_config_key_word(config, key, made.word_count))
        made.word_count++;
    qobs_setting_print(setting, &defaults, false, made.default_value);
    out_copy(info, &made, sizeof made);
    return qobs_succeed(error);
}

/* ---- Needs ------------------------------------------------------------------------------------------------------- */

int qobs_config_get_needs(const qobs_config *config, qobs_config_needs *needs, qobs_error *error)
{
    struct stages stages;
    struct quantize_rule rule;
    RETURN_IF_FAILED(qobs_config_check(config, error));
    RETURN_IF_FAILED(out_check("needs", needs, SIZE_THROUGH(qobs_config_needs, one_tensor), error));
    qobs_stages_of(config, &stages);
    const struct range_params *p = &stages.range.params;
    const struct range_ops *range = stages.range.ops;
    const bool finds = qobs_resolve_quantize(config, NULL, true, &rule, NULL) == QOBS_OK && rule.finds_scales;
    qobs_config_needs own;
    memset(&own, 0, sizeof own);
    own.searches_range = qobs_range_has_record(range);
    own.searches_scale = range->optimal != NULL;
    own.importance = p->importance;
    own.importance_required = p->importance && p->strict;
    own.hessian = p->hessian;
    own.signed_scale = range->optimal && p->optimal.signed_scale;
    own.global_scale = stages.traits.global != GLOBAL_NONE;
    own.one_tensor = finds;
    own.rounds_codes = range->optimal && p->optimal.rounds_codes;
    out_copy(needs, &own, sizeof own);
    return qobs_succeed(error);
}

/* ---- Configurations ---------------------------------------------------------------------------------------------- */

/* Configurations: life and checks. */

static size_t family_length(const char *preset) { return preset && strchr(preset, '.') ? strcspn(preset, ".") : 0; }

static bool same_family(const char *a, const char *b)
{
    const size_t length = family_length(a);
    return length > 0 && length == family_length(b) && strncmp(a, b, length) == 0;
}

/* Lists presets for a message: the other families, then those of the name's family, as far as there is room. */
static void list_presets(const char *name, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int own = 0; own < 2; own++)
        for (size_t i = 0; i < qobs_preset_count() && used < size; i++) {
            const char *preset = qobs_preset_name(i), *comma = used ? ", " : "";
            if (same_family(name, preset) != (own == 1))
                continue;
            if (own)
                used += (size_t)snprintf(text + used, size - used, "%s%s", comma, preset);
            else if (i == 0 || !same_family(qobs_preset_name(i - 1), preset))
                used +=
                    (size_t)snprintf(text + used, size - used, "%s%.*s.*", comma, (int)family_length(preset), preset);
        }
}

/* A configuration with these settings and its own runtime. */
static int make(qobs_config **result, const struct qobs_config *settings, const qobs_runtime *given, qobs_error *error)
{
    struct runtime runtime;
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, given, error));
    qobs_config *config = qobs_allocate(&runtime, sizeof *config);
    RETURN_IF_FAILED(qobs_require_memory(config, "config", sizeof *config, error));
    *config = *settings;
    config->runtime = runtime;
    *result = config;
    return qobs_succeed(error);
}

int qobs_config_create(qobs_config **result, const char *name, const qobs_runtime *given, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require(result, "config", error));
    struct qobs_config defaults;
    if (!name || !qobs_config_defaults_of(name, &defaults)) {
        char known[400];
        RETURN_IF_FAILED(qobs_preset_left_out(name, error));
        list_presets(name, known, sizeof known);
        return qobs_invalid(error, "preset: '%s' is unknown; known are %s", name ? name : "(null)", known);
    }
    return make(result, &defaults, given, error);
}

void qobs_config_destroy(qobs_config *config)
{
    if (config) {
        const struct runtime runtime = config->runtime;
        qobs_release(&runtime, config, sizeof *config);
    }
}

int qobs_config_check(const qobs_config *config, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require(config, "config", error));
    FP_SCOPE;
    return qobs_finish(qobs_settings_check(config, error), error);
}
