/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Settings from text, one or many. */
#include <string.h>
#include <strings.h>

#include "config/settings.h"

/* Longer keys and values do not exist. */
enum { KEY = 64, VALUE = 128, NAME = 64 };

/* ---- One setting ------------------------------------------------------------------------------------------------- */

/* "none" has no value, either, unless it is a word of the setting. */
static bool is_unset(const struct setting *setting, const char *value)
{
    for (const struct word *w = setting->kind == KIND_WORD ? setting->words : NULL; w && w->text; w++)
        if (strcasecmp(value, w->text) == 0)
            return false;
    return strcasecmp(value, "null") == 0 || strcasecmp(value, "none") == 0;
}

int qobs_config_set(qobs_config *config, const char *key, const char *given, qobs_error *error)
{
    if (!config || !key || !given)
        return qobs_invalid(error, "%s: is NULL", !config ? "config" : !key ? "key" : "value");
    /* A JSON string and a bare word are the same. */
    char value[VALUE];
    const size_t length = strlen(given);
    const size_t quote = length >= 2 && given[0] == '"' && given[length - 1] == '"' ? 1 : 0;
    if (length >= sizeof value)
        return qobs_invalid(error, "%s: its value is %zu characters long, allowed are %zu", key, length,
                            sizeof value - 1);
    memcpy(value, given + quote, length - 2 * quote);
    value[length - 2 * quote] = '\0';

    const struct setting *setting;
    RETURN_IF_FAILED(qobs_setting_require(config->preset, key, &setting, error));
    if (!quote && is_unset(setting, value))
        qobs_setting_restore(setting, config);
    else
        RETURN_IF_FAILED(qobs_setting_parse(setting, value, config, error));
    return qobs_succeed(error);
}

/* ---- Many settings ----------------------------------------------------------------------------------------------- */

static bool is_separator(char c) { return c != '\0' && strchr("; \t\n\v\f\r", c); }

static const char *skip_separators(const char *text)
{
    while (is_separator(*text))
        text++;
    return text;
}

/* The length of the text before the first separator outside brackets and quotes; *closed: none of these is open. */
static size_t word_length(const char *text, bool *closed)
{
    size_t n = 0;
    int depth = 0;
    bool quoted = false;
    for (; text[n] && (quoted || depth > 0 || !is_separator(text[n])); n++) {
        if (text[n] == '"')
            quoted = !quoted;
        else if (!quoted)
            depth += (text[n] == '[' || text[n] == '(') - (text[n] == ']' || text[n] == ')');
    }
    *closed = !quoted && depth == 0;
    return n;
}

/* For messages, whose length is limited. */
static int shown(size_t length) { return length < 100 ? (int)length : 100; }

/* Sets "key=value" of `length` characters. */
static int assign(qobs_config *config, const char *text, size_t length, bool closed, qobs_error *error)
{
    const char *equals = memchr(text, '=', length);
    if (!equals)
        return qobs_invalid(error, "settings: '%.*s' is not KEY=VALUE without blanks", shown(length), text);
    const size_t key_length = (size_t)(equals - text), value_length = length - key_length - 1;
    if (!closed)
        return qobs_invalid(error, "%.*s: is '%.*s', which has an unmatched bracket or quote", shown(key_length), text,
                            shown(value_length), equals + 1);
    if (value_length >= VALUE)
        return qobs_invalid(error, "%.*s: its value is %zu characters long, allowed are %d", shown(key_length), text,
                            value_length, VALUE - 1);
    char key[KEY], value[VALUE];
    const size_t kept = key_length < KEY ? key_length : KEY - 1; /* a longer one is unknown as well */
    memcpy(key, text, kept);
    key[kept] = '\0';
    memcpy(value, equals + 1, value_length);
    value[value_length] = '\0';
    return qobs_config_set(config, key, value, error);
}

int qobs_config_set_all(qobs_config *config, const char *settings, qobs_error *error)
{
    if (!config || !settings)
        return qobs_invalid(error, "%s: is NULL", config ? "settings" : "config");
    qobs_config changed = *config;
    bool closed;
    size_t length;
    for (const char *word = settings; *(word = skip_separators(word)); word += length) {
        length = word_length(word, &closed);
        RETURN_IF_FAILED(assign(&changed, word, length, closed, error));
    }
    *config = changed;
    return qobs_succeed(error);
}

int qobs_config_parse(qobs_config **config, const char *text, const qobs_runtime *runtime, qobs_error *error)
{
    if (!config || !text)
        return qobs_invalid(error, "%s: is NULL", config ? "text" : "config");
    const char *preset = skip_separators(text);
    size_t length = 0;
    while (preset[length] && !is_separator(preset[length]))
        length++;
    char name[NAME];
    const size_t kept = length < NAME ? length : NAME - 1; /* a longer one is unknown as well */
    memcpy(name, preset, kept);
    name[kept] = '\0';
    qobs_config *made;
    RETURN_IF_FAILED(qobs_config_create(&made, name, runtime, error));
    const int status = qobs_config_set_all(made, preset + length, error);
    if (status != QOBS_OK) {
        qobs_config_destroy(made);
        return status;
    }
    *config = made;
    return qobs_succeed(error);
}
