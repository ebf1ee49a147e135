/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Model-Optimizer and Quark 0.13 have tensors of compressed-tensors under other names. */
#include "model/stated_schemes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "files/json.h"
#include "files/text.h"
#include "schemes/dialects.h"
#include "schemes/match.h"

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* Adds a name with `*` for any text. */
static int add_ignored(struct quant_config *config, const char *name, struct fail *f)
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
    return quant_config_add_ignore(config, strchr(name, '*') ? pattern : name, f);
}

/* Adds a list of such names. */
static int add_ignored_list(struct quant_config *config, const json_object *list, struct fail *f)
{
    json_each(item, list) if (json_is_string(item.value))
        RETURN_IF_NOT_OK(add_ignored(config, json_text(item.value), f));
    return QOBS_OK;
}

/* ---- Model-Optimizer --------------------------------------------------------------------------------------------- */

/* Returns the row of an algorithm, in any case; NULL: its tensors are not read. */
static const struct dialect_form *form_of(const json_object *algorithm)
{
    for (const struct dialect_form *form = dialect_of_algorithms()->forms; form->scheme; form++)
        if (json_is_string(algorithm) && strcasecmp(json_text(algorithm), form->algorithm) == 0)
            return form;
    return NULL;
}

static int add_form(struct quant_config *config, const struct dialect_form *form, const char *const *targets,
                    size_t count, struct fail *f)
{
    RETURN_IF_NOT_OK(quant_config_add_scheme(config, form->preset, targets, count, f));
    config->groups[config->group_count - 1].other_inputs = form->other_inputs;
    return QOBS_OK;
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
static int read_layers(struct quant_config *config, const json_object *layers, const char *where, struct fail *f)
{
    OWNED const char **targets = calloc(json_count(layers) + 1, sizeof *targets);
    if (!targets)
        return NO_MEMORY(f, "the layers");
    json_each(item, layers)
    {
        const json_object *algorithm = json_get(item.value, "quant_algo");
        if (!form_of(algorithm))
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
            RETURN_IF_NOT_OK(add_form(config, form, targets, count, f));
    }
    return QOBS_OK;
}

static int read_modelopt(struct quant_config *config, const json_object *quantization, const char *where,
                         struct fail *f)
{
    const json_object *algorithm = json_get(quantization, "quant_algo");
    const json_object *layers = json_get(quantization, "quantized_layers");
    if (layers && json_is_string(algorithm) && strcmp(json_text(algorithm), "MIXED_PRECISION") == 0)
        RETURN_IF_NOT_OK(read_layers(config, layers, where, f));
    else if (!form_of(algorithm))
        return unread(algorithm, where, "the model", f);
    else
        RETURN_IF_NOT_OK(add_form(config, form_of(algorithm), NULL, 0, f));
    RETURN_IF_NOT_OK(add_ignored_list(config, json_get(quantization, "ignore"), f));
    return add_ignored_list(config, json_get(quantization, "exclude_modules"), f);
}

/* ---- Quark ------------------------------------------------------------------------------------------------------- */

/* Specifications of weights and of inputs, and the scheme that they are. group -1: any. */
static const struct quark_scheme {
    const char *weight, *granularity;
    int group;
    const char *input; /* NULL: not quantized */
    bool dynamic;
    const char *preset;
} quark_schemes[] = {{"fp8_e4m3", "per_tensor", 0, "fp8_e4m3", false, "FP8"},
                     {"fp8_e4m3", "per_channel", 0, "fp8_e4m3", true, "FP8_DYNAMIC"},
                     {"fp4", "per_group", 32, "fp4", true, "MXFP4"},
                     {"fp4", "per_group", 32, NULL, false, "MXFP4A16"},
                     {"int4", "per_group", -1, NULL, false, "W4A16"},
                     {"uint4", "per_group", -1, NULL, false, "W4A16_ASYM"}};

enum { QUARK_SCHEMES = sizeof quark_schemes / sizeof *quark_schemes };

static bool is_scheme(const struct quark_scheme *s, const json_object *weight, const json_object *input)
{
    const double group = json_number_of(weight, "group_size", 0);
    const char *scale = json_text_of(weight, "scale_format");
    const bool same = strcmp(json_text_of(weight, "dtype"), s->weight) == 0 &&
                      strcmp(json_text_of(weight, "qscheme"), s->granularity) == 0 &&
                      (s->group < 0 ? group > 0 : group == s->group) && strcmp(scale, "e5m3") != 0;
    if (!same || !s->input)
        return same && !input;
    return strcmp(json_text_of(input, "dtype"), s->input) == 0 &&
           json_is_true(json_get(input, "is_dynamic")) == s->dynamic;
}

static int unread_quark(const char *where, const json_object *weight, const json_object *input, struct fail *f)
{
    char known[100] = "";
    for (size_t i = 0; i < QUARK_SCHEMES; i++)
        text_append(known, sizeof known, "%s%s", *known ? ", " : "", quark_schemes[i].preset);
    return INVALID(f, "%s: Quark's weights of %.40s %.40s with inputs of %.40s are not read; read are those of %s",
                   where, json_text_of(weight, "dtype"), json_text_of(weight, "qscheme"),
                   input ? json_text_of(input, "dtype") : "the model", known);
}

static int read_quark_scheme(struct quant_config *config, const json_object *all, const char *where, struct fail *f)
{
    const json_object *weight = json_get(all, "weight"), *input = json_get(all, "input_tensors");
    for (size_t i = 0; i < QUARK_SCHEMES; i++)
        if (is_scheme(&quark_schemes[i], weight, input)) {
            RETURN_IF_NOT_OK(quant_config_add_scheme(config, quark_schemes[i].preset, NULL, 0, f));
            if (quark_schemes[i].group == 0)
                return QOBS_OK;
            return quant_args_take(&config->groups->weights, "group_size", weight, "group_size", where, f);
        }
    return unread_quark(where, weight, input, f);
}

static int read_quark(struct quant_config *config, const json_object *json, const char *where, struct fail *f)
{
    if (json_count(json_get(json, "layer_quant_config")) > 0)
        return INVALID(f, "%s: layer_quant_config of Quark is not read; one scheme for all layers is", where);
    const char *order = json_text_of(json_get(json, "export"), "pack_method");
    if (*order && strcmp(order, "reorder") != 0)
        return INVALID(f, "%s: pack_method of Quark is '%.40s'; reorder is read", where, order);
    RETURN_IF_NOT_OK(read_quark_scheme(config, json_get(json, "global_quant_config"), where, f));
    return add_ignored_list(config, json_get(json, "exclude"), f);
}

/* ---- transformers ------------------------------------------------------------------------------------------------ */

/* Methods whose members say the scheme, the first that fits. value NULL: any, or none. */
static const struct {
    const char *method, *member, *value, *preset;
} methods[] = {{"fbgemm_fp8", NULL, NULL, "FP8_DYNAMIC"},
               {"fp8", "weight_block_size", NULL, "FP8_BLOCK"},
               {"fp8", "activation_scheme", "static", "FP8"},
               {"fp8", NULL, NULL, "FP8_DYNAMIC"}};

/* No runtime makes a quantized layer of the head. */
static int read_fp8(struct quant_config *config, const char **maker, const json_object *json, const char *preset,
                    const char *where, struct fail *f)
{
    RETURN_IF_NOT_OK(quant_config_add_scheme(config, preset, NULL, 0, f));
    struct quant_args *w = &config->groups->weights;
    if (w->strategy != QUANT_BLOCK)
        return QOBS_OK;
    *maker = STATED_FP8;
    RETURN_IF_NOT_OK(quant_args_take(w, "block_structure", json, "weight_block_size", where, f));
    RETURN_IF_NOT_OK(add_ignored_list(config, json_get(json, "modules_to_not_convert"), f));
    return add_ignored(config, "lm_head", f);
}

static int read_method(struct quant_config *config, const char **maker, const json_object *json, const char *where,
                       struct fail *f)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        const json_object *value = methods[i].member ? json_get(json, methods[i].member) : json;
        if (strcmp(json_text_of(json, "quant_method"), methods[i].method) == 0 && value &&
            (!methods[i].value || (json_is_string(value) && strcmp(json_text(value), methods[i].value) == 0)))
            return read_fp8(config, maker, json, methods[i].preset, where, f);
    }
    return QOBS_OK;
}

/* ---- compressed-tensors ------------------------------------------------------------------------------------------ */

/* Files of releases before 0.13 lack the dtype of scales. */
static void complete(struct quant_args *a)
{
    const struct quant_format_row *row = quant_format_row(quant_format_infer(a, false));
    if (a->type == QUANT_FLOAT && !a->scale_dtype && row->strategy == a->strategy)
        a->scale_dtype = row->scale_dtype;
}

static int read_groups(struct quant_config *config, const json_object *json, const char *where, struct fail *f)
{
    RETURN_IF_NOT_OK(quant_config_parse(config, json, where, f));
    for (size_t i = 0; i < config->group_count; i++) {
        complete(&config->groups[i].weights);
        complete(&config->groups[i].inputs);
    }
    return QOBS_OK;
}

/* ---- Any --------------------------------------------------------------------------------------------------------- */

int stated_schemes_read(struct quant_config *config, const char **maker, const struct model *m, struct fail *f)
{
    const json_object *json = json_get(m->config, "quantization_config");
    const bool modelopt = json_get(json, "quant_algo") != NULL;
    const char *method = json_text_of(json, "quant_method");
    *maker = strcmp(method, "quark") == 0                ? "Quark"
             : modelopt || (!json && m->hf_quant_config) ? "Model-Optimizer"
                                                         : NULL;
    if (strcmp(method, "quark") == 0)
        return read_quark(config, json, m->config_path, f);
    if (modelopt)
        return read_modelopt(config, json, m->config_path, f);
    if (*maker)
        return read_modelopt(config, json_get(m->hf_quant_config, "quantization"), HF_QUANT_CONFIG, f);
    return strcmp(method, DIALECT_DEFAULT) == 0 ? read_groups(config, json, m->config_path, f)
                                                : read_method(config, maker, json, m->config_path, f);
}

int stated_schemes_check(const struct model *m, struct fail *f)
{
    RELEASED_BY(quant_config_free) struct quant_config config = {0};
    const char *maker;
    return stated_schemes_read(&config, &maker, m, f);
}

const struct quant_group *stated_group(const struct quant_config *config, const struct quant_matchers *targets,
                                       const char *name, size_t length, bool *by_class)
{
    *by_class = false;
    for (size_t i = 0; i < targets->count; i++)
        if (matcher_find(targets->groups[i], name, length) >= 0)
            return &config->groups[i];
    *by_class = true;
    for (size_t i = 0; i < targets->count; i++)
        if (matcher_has(targets->groups[i], "Linear"))
            return &config->groups[i];
    return NULL;
}
