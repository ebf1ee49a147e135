/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Configurations of Model-Optimizer: quantization_config with a quant_algo in config.json, or hf_quant_config.json. Its
 * tensors are those of compressed-tensors under other names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "audit/audit.h"
#include "files/json.h"
#include "files/text.h"
#include "schemes/dialects.h"

const char *audit_part_name(const struct audit *audit, const char *part)
{
    static const char *const names[][2] = {
        {"weight_packed", "weight"}, {"weight_global_scale", "weight_scale_2"}, {"input_global_scale", "input_scale"}};
    for (size_t i = 0; audit->maker && i < sizeof names / sizeof *names; i++)
        if (strcmp(part, names[i][0]) == 0)
            return names[i][1];
    return part;
}

int audit_add_ignored(struct audit *audit, const char *name, struct fail *f)
{
    char pattern[1024] = "re:";
    size_t n = 3;
    for (const char *p = name; *p && n + 4 < sizeof pattern; p++) {
        if (*p == '*')
            pattern[n++] = '.';
        else if (strchr(".[]()+?^$|\\{}", *p))
            pattern[n++] = '\\';
        pattern[n++] = *p;
    }
    snprintf(pattern + n, sizeof pattern - n, "$");
    return quant_config_add_ignore(&audit->config, strchr(name, '*') ? pattern : name, f);
}

/* Returns the scheme of an algorithm, in any case; NULL: its tensors are not read. */
static const char *scheme_of(const json_object *algorithm)
{
    for (const struct dialect_form *form = dialect_of_algorithms()->forms; form->scheme; form++)
        if (json_is_string(algorithm) && strcasecmp(json_text(algorithm), form->algorithm) == 0)
            return form->preset;
    return NULL;
}

static int unread(const json_object *algorithm, const char *where, const char *layer, struct fail *f)
{
    struct fail known = {.message = ""};
    for (const struct dialect_form *form = dialect_of_algorithms()->forms; form->scheme; form++)
        text_append(known.message, sizeof known.message, "%s%s", *known.message ? ", " : "", form->algorithm);
    return INVALID(f, "%s: quant_algo of %.60s is %.40s; read are %s", where, layer, JSON_WORDS(algorithm),
                   known.message);
}

/* Reads quantized_layers, an algorithm for each: a group of targets for each scheme. */
static int read_layers(struct audit *audit, const json_object *layers, const char *where, struct fail *f)
{
    OWNED const char **targets = calloc(json_count(layers) + 1, sizeof *targets);
    if (!targets)
        return NO_MEMORY(f, "the layers");
    json_each(item, layers)
    {
        const json_object *algorithm = json_get(item.value, "quant_algo");
        if (!scheme_of(algorithm))
            return unread(algorithm, where, item.key, f);
    }
    for (const struct dialect_form *form = dialect_of_algorithms()->forms; form->scheme; form++) {
        size_t count = 0;
        json_each(item, layers)
        {
            if (strcasecmp(json_text(json_get(item.value, "quant_algo")), form->algorithm) == 0)
                targets[count++] = item.key;
        }
        if (count > 0)
            RETURN_IF_NOT_OK(quant_config_add_scheme(&audit->config, form->preset, targets, count, f));
    }
    return QOBS_OK;
}

static int read_algorithm(struct audit *audit, const json_object *quantization, const char *where, struct fail *f)
{
    const json_object *algorithm = json_get(quantization, "quant_algo");
    const json_object *layers = json_get(quantization, "quantized_layers");
    if (layers && json_is_string(algorithm) && strcmp(json_text(algorithm), "MIXED_PRECISION") == 0)
        RETURN_IF_NOT_OK(read_layers(audit, layers, where, f));
    else if (!scheme_of(algorithm))
        return unread(algorithm, where, "the model", f);
    else
        RETURN_IF_NOT_OK(quant_config_add_scheme(&audit->config, scheme_of(algorithm), NULL, 0, f));
    static const char *const keys[] = {"ignore", "exclude_modules"};
    for (size_t k = 0; k < 2; k++)
        json_each(item, json_get(quantization, keys[k])) if (json_is_string(item.value))
            RETURN_IF_NOT_OK(audit_add_ignored(audit, json_text(item.value), f));
    audit->maker = "Model-Optimizer";
    return QOBS_OK;
}

int audit_read_modelopt(struct audit *audit, bool *found, struct fail *f)
{
    const struct model *m = &audit->model;
    const json_object *config = json_get(m->config, "quantization_config");
    const bool own = json_get(config, "quant_algo") != NULL;
    *found = own || (!config && m->hf_quant_config);
    if (own)
        return read_algorithm(audit, config, m->config_path, f);
    return *found ? read_algorithm(audit, json_get(m->hf_quant_config, "quantization"), HF_QUANT_CONFIG, f) : QOBS_OK;
}
