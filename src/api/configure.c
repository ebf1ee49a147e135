/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Configurations: life, settings as text, checks. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "config/check.h"
#include "config/settings.h"

/* ---- Set and get
 * --------------------------------------------------------------------------------------------------------- */

static int unknown_key(const qobs_config *config, const char *key, qobs_error *error)
{
    char known[220];
    size_t used = 0;
    known[0] = '\0';
    const struct setting *setting;
    for (size_t i = 0; (setting = qobs_setting_at(config->preset, i)) && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", setting->key);
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: '%s' is no setting; known are %s", config->preset->name,
                     key, known);
}

int qobs_config_set(qobs_config *config, const char *key, const char *given, qobs_error *error)
{
    if (!config || !key || !given)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL",
                         !config ? "config"
                         : !key  ? "key"
                                 : "value");
    /* A JSON string and a bare word are the same. */
    char value[128];
    const size_t length = strlen(given);
    const size_t quote = length >= 2 && given[0] == '"' && given[length - 1] == '"' ? 1 : 0;
    if (length >= sizeof value)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: its value is %zu characters long, allowed are %zu",
                         key, length, sizeof value - 1);
    memcpy(value, given + quote, length - 2 * quote);
    value[length - 2 * quote] = '\0';

    const struct setting *setting = qobs_setting_find(config->preset, key);
    if (!setting)
        return unknown_key(config, key, error);
    if (!quote && (qobs_equal_ignoring_case(value, "null") || qobs_equal_ignoring_case(value, "none"))) {
        qobs_setting_restore(setting, config);
        return qobs_succeed(error);
    }
    const int status = qobs_setting_parse(setting, value, config, error);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

int qobs_config_get(const qobs_config *config, const char *key, char *value, size_t size, qobs_error *error)
{
    if (!config || !key || (!value && size > 0))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL",
                         !config ? "config"
                         : !key  ? "key"
                                 : "value");
    const struct setting *setting = qobs_setting_find(config->preset, key);
    if (!setting)
        return unknown_key(config, key, error);
    const int written = qobs_setting_print(setting, config, value, size);
    if ((size_t)written >= size)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "size: is %zu, the value of %s needs %d", size, key,
                         written + 1);
    return qobs_succeed(error);
}

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

/* ---- Life and checks
 * ------------------------------------------------------------------------------------------------------ */

/* Lists presets for a message: first those of the name's family. Ends with the number of presets that do not fit. */
static void list_presets(const char *name, char *text, size_t size)
{
    const size_t prefix = name && strchr(name, '.') ? (size_t)(strchr(name, '.') - name) + 1 : 0, workspace = size - 16;
    size_t used = 0, more = 0;
    for (int others = 0; others < 2; others++)
        for (size_t i = 0; i < qobs_preset_count(); i++) {
            const char *preset = qobs_preset_name(i);
            const bool other = prefix == 0 || strncmp(preset, name, prefix) != 0;
            if (other != (others == 1))
                continue;
            if (more > 0 || used + strlen(preset) + 2 > workspace)
                more++;
            else
                used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", preset);
        }
    if (more > 0)
        snprintf(text + used, size - used, ", %zu more", more);
}

int qobs_config_create(qobs_config **result, const char *name, const qobs_runtime *given, qobs_error *error)
{
    if (!result)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "config: is NULL");
    struct runtime runtime;
    const struct preset *preset = name ? qobs_preset_find(name) : NULL;
    if (!preset) {
        char known[200];
        list_presets(name, known, sizeof known);
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "preset: '%s' is unknown; known are %s",
                         name ? name : "(null)", known);
    }
    const int status = qobs_runtime_resolve(&runtime, given, error);
    if (status != QOBS_OK)
        return status;
    qobs_config *config = qobs_allocate(&runtime, sizeof *config);
    if (!config)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "config: no memory for %zu bytes", sizeof *config);
    *config = qobs_config_defaults(preset);
    config->runtime = runtime;
    *result = config;
    return qobs_succeed(error);
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
    if (!config)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "config: is NULL");
    const fp_mode mode = fp_enter();
    int status = QOBS_OK;
    switch (config->preset->family) {
    case FAMILY_LLMC:
        status = qobs_check_llmc(config, error);
        break;
    case FAMILY_TORCH:
        status = qobs_check_torch(config, error);
        break;
    case FAMILY_QUARK:
        status = qobs_check_quark(config, error);
        break;
    case FAMILY_MODELOPT:
        status = qobs_check_modelopt(config, error);
        break;
    }
    if (status == QOBS_OK && config->is_dynamic && config->preset->accumulator->averages &&
        config->averaging_constant != 1)
        status = qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                           "is_dynamic: %s allows it only with averaging_constant 1, not %g", config->preset->name,
                           config->averaging_constant);
    fp_leave(mode);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}
