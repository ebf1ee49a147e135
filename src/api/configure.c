/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Configurations: life and checks. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "check/check.h"
#include "config/settings.h"

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
    const struct preset *preset = name ? qobs_preset_find(name) : NULL;
    if (!preset) {
        char known[200];
        list_presets(name, known, sizeof known);
        return qobs_invalid(error, "preset: '%s' is unknown; known are %s", name ? name : "(null)", known);
    }
    const struct qobs_config defaults = qobs_config_defaults(preset);
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
    int status = QOBS_OK;
    switch (config->preset->family) {
    case FAMILY_LLMC:
        status = qobs_check_llmc(config, error);
        break;
    case FAMILY_QOBS:
        status = qobs_check_optimal(config, error);
        break;
    case FAMILY_TORCH:
        status = qobs_check_torch(config, error);
        break;
    case FAMILY_ORT:
        status = qobs_check_ort(config, error);
        break;
    case FAMILY_TORCHAO:
        status = qobs_check_torchao(config, error);
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
        status = qobs_invalid(error, "is_dynamic: %s allows it only with averaging_constant 1, not %g",
                              config->preset->name, config->averaging_constant);
    fp_leave(mode);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}
