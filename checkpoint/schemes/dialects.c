/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Configurations as vLLM 0.32 (layers/quantization/auto_awq.py, auto_gptq.py, modelopt.py) and GPTQModel 5 read them.
 */
#include "schemes/dialects.h"

#include <string.h>
#include <strings.h>

#include "files/suggest.h"
#include "files/text.h"

#define BITS(b) (1u << (b))
#define GPTQ_BITS (BITS(2) | BITS(3) | BITS(4) | BITS(8))

static const struct dialect_form awq[] = {{QUANT_PACK, QUANT_AWQ, .bits = BITS(4)}, {0}};
static const struct dialect_form gptq[] = {{QUANT_PACK, QUANT_GPTQ, .bits = GPTQ_BITS}, {0}};
static const struct dialect_form gptq_v2[] = {{QUANT_PACK, QUANT_GPTQ_V2, .bits = GPTQ_BITS}, {0}};

#define FLOATS(bits, dynamic, more) "{\"dynamic\": " dynamic ", \"num_bits\": " bits ", \"type\": \"float\"" more "}"
#define GROUP(members) "{\"config_groups\": {\"group_0\": {" members ", \"targets\": [\"Linear\"]}}}"
#define WEIGHTS(args) "\"weights\": " args
#define BOTH(inputs, weights) "\"input_activations\": " inputs ", " WEIGHTS(weights)
#define GROUPS_OF(size) ", \"group_size\": " size
#define STRATEGY(name) ", \"strategy\": \"" name "\""
#define NV FLOATS("4", "false", GROUPS_OF("16"))
#define MX8(dynamic) FLOATS("8", dynamic, GROUPS_OF("32") STRATEGY("group"))

/* Members as Model-Optimizer 0.48 writes them (export/convert_hf_config.py). */
static const struct dialect_form modelopt[] = {
    {QUANT_FLOAT_QUANTIZED, QUANT_MODELOPT_FP8, 0, "FP8", "FP8",
     GROUP(BOTH(FLOATS("8", "false", ""), FLOATS("8", "false", ""))), 0, false},
    {QUANT_FLOAT_QUANTIZED, QUANT_MODELOPT_FP8, 0, "FP8_DYNAMIC", "FP8_PER_CHANNEL_PER_TOKEN",
     GROUP(BOTH(FLOATS("8", "true", STRATEGY("token")), FLOATS("8", "false", STRATEGY("channel")))), 0, false},
    {QUANT_FLOAT_QUANTIZED, QUANT_MODELOPT_FP8, 0, "FP8_BLOCK", "FP8_PB_WO",
     GROUP(WEIGHTS(FLOATS("8", "false", STRATEGY("block") ", \"block_structure\": [128, 128]"))), 128, false},
    {QUANT_NVFP4_PACK, QUANT_MODELOPT_NVFP4, 0, "NVFP4", "NVFP4", GROUP(BOTH(NV, NV)), 16, false},
    {QUANT_NVFP4_PACK, QUANT_MODELOPT_NVFP4, 0, "NVFP4A16", "W4A16_NVFP4", GROUP(WEIGHTS(NV)), 16, false},
    {QUANT_MXFP8, QUANT_MXFP8, 0, "MXFP8", "MXFP8", GROUP(BOTH(MX8("true"), MX8("false"))), 32, false},
    {QUANT_NVFP4_PACK, QUANT_FORMAT_NONE, 0, "NVFP4", "NVFP4_AWQ", NULL, 0, false},
    {QUANT_MXFP4_PACK, QUANT_FORMAT_NONE, 0, "MXFP4", "MXFP4", NULL, 0, false},
    {QUANT_MXFP4_PACK, QUANT_FORMAT_NONE, 0, "MXFP4", "W4A8_MXFP4_FP8", NULL, 0, true},
    {0},
};

static const struct dialect_form fp8[] = {
    {QUANT_FLOAT_QUANTIZED, QUANT_BLOCK_FP8, 0, "FP8_BLOCK", NULL, "{\"weight_block_size\": [128, 128]}", 0, false},
    {0}};

#define GPTQ_CONFIG(format)                                                                                            \
    {                                                                                                                  \
        .members = "{\"quant_method\": \"gptq\", \"checkpoint_format\": \"" format "\", \"desc_act\": false, "         \
                   "\"lm_head\": false}",                                                                              \
        .bits = "bits", .symmetric = "sym", .excluded = "dynamic", .patterns = true                                    \
    }

static const struct dialect_row rows[] = {
    {.name = "awq",
     .forms = awq,
     .config = {.members = "{\"quant_method\": \"awq\", \"version\": \"gemm\", \"zero_point\": true}",
                .bits = "bits",
                .excluded = "modules_to_not_convert"},
     .needs = "gptqmodel"},
    {.name = "gptq", .forms = gptq, .config = GPTQ_CONFIG("gptq"), .needs = "gptqmodel and optimum"},
    {.name = "gptq-v2", .forms = gptq_v2, .config = GPTQ_CONFIG("gptq_v2"), .needs = "gptqmodel and optimum"},
    /* DeepSeek's, as transformers 5.17 writes it (FineGrainedFP8Config). */
    {.name = "fp8",
     .forms = fp8,
     .config = {.members = "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"activation_scheme\": \"dynamic\"}",
                .excluded = "modules_to_not_convert"},
     .needs = "accelerate"},
    /* vLLM 0.32 reads hf_quant_config.json of no other producer (model_loader/weight_utils.py). */
    {.name = "modelopt",
     .forms = modelopt,
     .config = {.members = "{\"producer\": {\"name\": \"modelopt\", \"version\": \"0.48.0\"}, "
                           "\"quant_method\": \"modelopt\"}",
                .excluded = "ignore",
                .file = true,
                .kv_cache = true}},
};

enum { DIALECTS = sizeof rows / sizeof *rows };

const struct dialect_row *dialect_at(size_t index) { return index < DIALECTS ? &rows[index] : NULL; }

const struct dialect_row *dialect_of_algorithms(void)
{
    const struct dialect_row *d = rows;
    while (!d->forms->algorithm)
        d++;
    return d;
}

int dialect_find(const struct dialect_row **dialect, const char *name, struct fail *f)
{
    const char *names[DIALECTS + 2] = {DIALECT_DEFAULT};
    char known[200] = DIALECT_DEFAULT, hint[HINT_SIZE];
    *dialect = NULL;
    if (!name || strcmp(name, DIALECT_DEFAULT) == 0)
        return QOBS_OK;
    for (int i = 0; i < DIALECTS; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *dialect = &rows[i];
            return QOBS_OK;
        }
        names[i + 1] = rows[i].name;
        text_append(known, sizeof known, ", %s", rows[i].name);
    }
    if (strcasecmp(name, "gguf") == 0)
        return INVALID(f,
                       "dialect: is '%.60s', known are %s; GGUF files are made of a .gguf, which "
                       "convert_hf_to_gguf.py of llama.cpp makes of a model: --scheme Q4_K_M",
                       name, known);
    return INVALID(f, "dialect: is '%.60s', known are %s%s", name, known, did_you_mean(hint, name, names));
}

/* ---- Schemes ----------------------------------------------------------------------------------------------------- */

static bool holds(const struct dialect_form *form, const struct quant_group *g)
{
    const struct quant_args *w = &g->weights;
    if (!form->stored || g->format != form->scheme || g->has_outputs)
        return false;
    if (form->preset)
        return quant_group_has_preset(g, scheme_preset_find(form->preset));
    return w->type == QUANT_INT && form->bits & BITS(w->num_bits) && !g->has_inputs &&
           (w->strategy == QUANT_GROUP || w->strategy == QUANT_CHANNEL);
}

const struct dialect_form *dialect_form(const struct dialect_row *d, const struct quant_group *g)
{
    const struct dialect_form *form = d->forms;
    while (form->scheme && !holds(form, g))
        form++;
    return form->scheme ? form : NULL;
}

static int refuse(const struct dialect_row *d, const struct quant_group *g, struct fail *f)
{
    char known[200] = "";
    for (int b = 1; b <= 8; b++)
        if (d->forms->bits & BITS(b))
            text_append(known, sizeof known, "%s%d", *known ? ", " : "", b);
    for (const struct dialect_form *form = d->forms; form->scheme; form++)
        if (form->preset && form->stored)
            text_append(known, sizeof known, "%s%s", *known ? ", " : "", form->preset);
    return INVALID(f,
                   "dialect: %s does not store %.60s: it has %s%s%s; --dialect " DIALECT_DEFAULT " stores all schemes",
                   d->name, g->name, d->forms->bits ? "integers of " : "", known,
                   d->forms->bits ? " bits in groups or channels, and no quantized activations, as W4A16 and "
                                    "W4A16_ASYM are"
                                  : "");
}

/* Returns true for e4m3 with one static scale. */
static bool is_kv_cache(const struct quant_args *a)
{
    return a->type == QUANT_FLOAT && a->num_bits == 8 && a->strategy == QUANT_TENSOR && a->dynamic == QUANT_STATIC;
}

int dialect_apply(struct quant_config *config, const struct dialect_row *d, struct fail *f)
{
    if (!d)
        return QOBS_OK;
    if (config->compat != QOBS_COMPAT_VLLM)
        return INVALID(f, "dialect: is %s; releases of llm-compressor write " DIALECT_DEFAULT " alone", d->name);
    for (size_t i = 0; i < config->group_count; i++) {
        struct quant_group *g = &config->groups[i];
        const struct dialect_form *form = dialect_form(d, g);
        if (!form)
            return refuse(d, g, f);
        if (i > 0 && !quant_groups_alike(g, config->groups))
            return INVALID(f,
                           "dialect: %s has one scheme for all layers, and these are %.60s and %.60s; "
                           "--dialect " DIALECT_DEFAULT " has any number",
                           d->name, config->groups->name, g->name);
        g->stored = form->stored;
    }
    if (config->has_kv_cache && !(d->config.kv_cache && is_kv_cache(&config->kv_cache)))
        return INVALID(f, "dialect: %s does not describe these keys and values; --dialect " DIALECT_DEFAULT " does",
                       d->name);
    config->dialect = d;
    return QOBS_OK;
}
