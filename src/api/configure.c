/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Configurations: life and checks. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "config/settings.h"

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
    if (!config)
        return qobs_no_memory(error, "config: no memory for %zu bytes", sizeof *config);
    *config = *settings;
    config->runtime = runtime;
    *result = config;
    return qobs_succeed(error);
}

int qobs_config_create(qobs_config **result, const char *name, const qobs_runtime *given, qobs_error *error)
{
    if (!result)
        return qobs_invalid(error, "config: is NULL");
    struct qobs_config defaults;
    if (!name || !qobs_config_defaults_of(name, &defaults)) {
        char known[400];
        list_presets(name, known, sizeof known);
        return qobs_invalid(error, "preset: '%s' is unknown; known are %s", name ? name : "(null)", known);
    }
    return make(result, &defaults, given, error);
}

int qobs_config_clone(qobs_config **clone, const qobs_config *config, const qobs_runtime *given, qobs_error *error)
{
    if (!clone || !config)
        return qobs_invalid(error, "%s: is NULL", clone ? "config" : "clone");
    return make(clone, config, given, error);
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
        return qobs_invalid(error, "config: is NULL");
    const fp_mode mode = fp_enter();
    const int status = qobs_settings_check(config, error);
    fp_leave(mode);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}
