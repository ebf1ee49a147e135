/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Configurations of Quark 0.13, whose tensors of floats have the names of Model-Optimizer. */
#include <string.h>

#include "audit/audit.h"
#include "files/json.h"
#include "files/text.h"

/* Specifications of weights and of inputs, and the scheme that they are. */
static const struct quark_scheme {
    const char *weight, *granularity;
    int group;
    const char *input; /* NULL: not quantized */
    bool dynamic;
    const char *preset;
} schemes[] = {{"fp8_e4m3", "per_tensor", 0, "fp8_e4m3", false, "FP8"},
               {"fp8_e4m3", "per_channel", 0, "fp8_e4m3", true, "FP8_DYNAMIC"},
               {"fp4", "per_group", 32, "fp4", true, "MXFP4"},
               {"fp4", "per_group", 32, NULL, false, "MXFP4A16"}};

enum { SCHEMES = sizeof schemes / sizeof *schemes };

static bool is_scheme(const struct quark_scheme *s, const json_object *weight, const json_object *input)
{
    const bool same = strcmp(json_text_of(weight, "dtype"), s->weight) == 0 &&
                      strcmp(json_text_of(weight, "qscheme"), s->granularity) == 0 &&
                      json_number_of(weight, "group_size", 0) == s->group;
    if (!same || !s->input)
        return same && !input;
    return strcmp(json_text_of(input, "dtype"), s->input) == 0 &&
           json_is_true(json_get(input, "is_dynamic")) == s->dynamic;
}

static int unread(const char *where, const json_object *weight, const json_object *input, struct fail *f)
{
    char known[100] = "";
    for (size_t i = 0; i < SCHEMES; i++)
        text_append(known, sizeof known, "%s%s", *known ? ", " : "", schemes[i].preset);
    return INVALID(f, "%s: Quark's weights of %.40s %.40s with inputs of %.40s are not read; read are %s", where,
                   json_text_of(weight, "dtype"), json_text_of(weight, "qscheme"),
                   input ? json_text_of(input, "dtype") : "the model", known);
}

static int read_scheme(struct audit *audit, const json_object *all, const char *where, struct fail *f)
{
    const json_object *weight = json_get(all, "weight"), *input = json_get(all, "input_tensors");
    for (size_t i = 0; i < SCHEMES; i++)
        if (is_scheme(&schemes[i], weight, input))
            return quant_config_add_scheme(&audit->config, schemes[i].preset, NULL, 0, f);
    return unread(where, weight, input, f);
}

int audit_read_quark(struct audit *audit, bool *found, struct fail *f)
{
    const json_object *config = json_get(audit->model.config, "quantization_config");
    const char *where = audit->model.config_path;
    *found = strcmp(json_text_of(config, "quant_method"), "quark") == 0;
    if (!*found)
        return QOBS_OK;
    if (json_count(json_get(config, "layer_quant_config")) > 0)
        return INVALID(f, "%s: layer_quant_config of Quark is not read; one scheme for all layers is", where);
    RETURN_IF_NOT_OK(read_scheme(audit, json_get(config, "global_quant_config"), where, f));
    json_each(item, json_get(config, "exclude")) if (json_is_string(item.value))
        RETURN_IF_NOT_OK(audit_add_ignored(audit, json_text(item.value), f));
    audit->maker = "Quark";
    return QOBS_OK;
}
